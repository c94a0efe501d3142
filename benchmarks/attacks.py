"""A server under attack: what another client, /health and its memory notice of it.

    python -m benchmarks.attacks
    python -m benchmarks.attacks S15 S16 --seconds 20 --json attacks.json

For each case a real `paredown serve` is started on the built-in model, or on a hostile copy of it.
A client asks for completions, first alone, then while NUM_CLIENTS others attack from addresses of
their own, in a process that gives way to the server. Results go to docs/results/attacks.json, and
from there to docs/results/attacks.md; cases that are not measured stay as they were. The exit code
is 1 where a case does not meet what is asked.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import httpx

from benchmarks.attack_cases import NUM_CLIENTS, Attack, Target, attacks, spoiled
from benchmarks.attack_results import Found, section, table
from benchmarks.build import ROOT
from benchmarks.real import page
from benchmarks.real.machine import describe_machine
from benchmarks.real.peak_memory import anonymous_bytes
from paredown.kernels.probe import default_num_threads
from paredown.models.resolve import resolve_model

RESULTS = ROOT / "docs" / "results"
_BODY = {"prompt": "Once upon a time", "max_tokens": 16, "ignore_eos": True, "temperature": 0}
# The built-in model's pages hold this many contexts.
_NUM_CONTEXTS, _CONTEXT_TOKENS = 16, 2000
_HEALTH_PERIOD_S = 0.05
_MEMORY_PERIOD_S = 0.02
# A request without an answer after this time counts as unanswered.
_PATIENCE_S = 30.0
# The time after the attack for memory to be freed; connections time out meanwhile.
_REST_S = 3.0
_HEADING = [
    "# Under attack",
    "",
    "Measured by `make attacks` on a real server: what a client, /health and memory notice while",
    "four others attack. docs/internals/security.md says what guards each case.",
]


@contextmanager
def running(model: Path, options: Sequence[str], log: Path) -> Iterator[tuple[int, int]]:
    """Yields a server's process id and port; its log goes to a file."""
    command = [
        sys.executable,
        "-m",
        "paredown.cli.main",
        "serve",
        str(model),
        "--port",
        "0",
        "--json",
    ]
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [*command, *options], cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"the server did not start: {log.read_text()[-2000:]}")
            yield process.pid, int(json.loads(line)["url"].rpartition(":")[2])
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def touch_pages(client: httpx.Client) -> None:
    """Writes all pages of keys and values before memory is measured, because the system allocates
    each on its first write."""
    for number in range(_NUM_CONTEXTS + 2):
        prompt = [1 + (number + 7 * place) % 8000 for place in range(_CONTEXT_TOKENS)]
        client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1})


def ask(client: httpx.Client, found: Found, seconds: float) -> list[float]:
    """Requests completions in sequence for `seconds`. A failed one counts with its time."""
    end_s, times = time.monotonic() + seconds, list[float]()
    while time.monotonic() < end_s:
        started_s = time.monotonic()
        try:
            is_answered = client.post("/v1/completions", json=_BODY).status_code == 200
        except httpx.HTTPError:
            is_answered = False
        times.append(time.monotonic() - started_s)
        found.num_failed += not is_answered
        if not is_answered:
            time.sleep(_HEALTH_PERIOD_S)
    return times


async def watch(port: int, pid: int, found: Found) -> None:
    """Polls /health, each time on a new connection, and the memory, until it is cancelled."""

    async def look_at_memory() -> None:
        while True:
            found.peak_bytes = max(found.peak_bytes, memory_bytes(pid))
            await asyncio.sleep(_MEMORY_PERIOD_S)

    async def look_at_health() -> None:
        while True:
            started_s = time.monotonic()
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    is_well = await ask_health(port)
            except (OSError, TimeoutError):
                is_well = False
            found.health_s.append(time.monotonic() - started_s)
            found.num_unhealthy += not is_well
            await asyncio.sleep(_HEALTH_PERIOD_S)

    await asyncio.gather(look_at_memory(), look_at_health())


async def ask_health(port: int) -> bool:
    """Uses no library, so that it takes little processor time from the server."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return (await reader.read(4096)).startswith(b"HTTP/1.1 200 ")
    finally:
        writer.transport.abort()


def memory_bytes(pid: int) -> int:
    try:
        return anonymous_bytes(Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0


@contextmanager
def child(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Runs another part of this program in a new process."""
    command = [sys.executable, "-m", "benchmarks.attacks", *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            process.kill()


def measure(attack: Attack, model: Path, seconds: float, *, one_address: bool) -> Found:
    found = Found(case=attack.case, what=attack.what)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        if attack.spoil is not None:
            model = spoiled(model, Path(folder) / "model", attack.spoil)
        with running(model, attack.options, log) as (pid, port):
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=_PATIENCE_S) as client:
                touch_pages(client)
                ask(client, found, 1.0)
                # Both runs are watched, because watching costs processor time.
                with child("--as-watcher", str(port), str(pid)):
                    found.alone_s = ask(client, found, seconds)
                found.num_failed, found.before_bytes = 0, memory_bytes(pid)
                whence = "" if one_address else "own"
                with (
                    child("--as-attackers", attack.case, str(port), whence),
                    child("--as-watcher", str(port), str(pid)) as watcher,
                ):
                    found.attacked_s = ask(client, found, seconds)
                    watcher.terminate()
                    assert watcher.stdout is not None
                    seen = json.loads(watcher.stdout.read())
            found.health_s, found.num_unhealthy = seen["health_s"], seen["num_unhealthy"]
            time.sleep(_REST_S)
            found.after_bytes = memory_bytes(pid)
            found.peak_bytes = max(seen["peak_bytes"], found.after_bytes)
            found.is_alive = found.after_bytes > 0
            # What the process logs on exit does not belong to the attack.
            found.log_bytes = log.stat().st_size
    return found


async def run_attackers(attack: Attack, port: int, *, one_address: bool) -> None:
    os.nice(19)
    print("ready", flush=True)
    sources = ["" if one_address else f"127.0.0.{10 + number}" for number in range(NUM_CLIENTS)]
    await asyncio.gather(*(attack.client(Target(port, source)) for source in sources))


async def run_watcher(port: int, pid: int) -> None:
    found, task = Found(case="", what=""), asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    print("ready", flush=True)
    try:
        await watch(port, pid, found)
    except asyncio.CancelledError:
        print(json.dumps(asdict(found)))


def write(all_found: Sequence[Found], seconds: float, num_threads: int, folder: Path) -> None:
    old = folder / "attacks.json"
    document = json.loads(old.read_text()) if old.exists() else None
    sections = [section(one, seconds) for one in all_found]
    document = page.merge(document, page.as_json(sections, describe_machine(num_threads)))
    folder.mkdir(parents=True, exist_ok=True)
    old.write_text(json.dumps(document, indent=2) + "\n")
    (folder / "attacks.md").write_text(page.markdown(document, _HEADING))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", help="what their names begin with (default: all)")
    parser.add_argument("--seconds", type=float, default=10.0, help="alone, and under attack")
    parser.add_argument("--one-address", action="store_true", help="all clients from 127.0.0.1")
    parser.add_argument("--json", type=Path, help="also write every number here", metavar="FILE")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where results are written")
    parser.add_argument("--no-results", action="store_true", help="print them alone")
    parser.add_argument("--as-attackers", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--as-watcher", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.as_watcher:
        asyncio.run(run_watcher(*map(int, args.as_watcher)))
        return 0
    model = resolve_model(None)
    vocabulary = json.loads((model / "tokenizer.json").read_text())["model"]["vocab"]
    known = {one.case: one for one in attacks(vocabulary["a"])}
    if args.as_attackers:
        case, port, own = args.as_attackers
        asyncio.run(run_attackers(known[case], int(port), one_address=not own))
        return 0
    chosen = [
        one for one in known.values() if not args.cases or one.case.startswith(tuple(args.cases))
    ]
    if not chosen:
        parser.error(f"no such case; there are {', '.join(known)}")
    all_found = []
    for one in chosen:
        all_found.append(measure(one, model, args.seconds, one_address=args.one_address))
        print(table(all_found[-1:]), flush=True)
    print("\n" + table(all_found))
    if args.json:
        args.json.write_text(json.dumps([asdict(one) for one in all_found], indent=2) + "\n")
    if not args.no_results:
        write(all_found, args.seconds, default_num_threads(), args.results)
    return 0 if all(one.is_met for one in all_found) else 1


if __name__ == "__main__":
    sys.exit(main())
