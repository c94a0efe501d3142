"""How much of the engine's speed is left over HTTP, with the client on the same machine.

    python -m benchmarks.http_speed [--model FOLDER] [--streams 1 8 32] [--tokens 64] [--rounds 5]
                                    [--threads N] [--json OUT]

Each round generates the same tokens twice, right after each other: offline, by the engine in this
process, and as streams of `paredown serve` in another one, read by a client in a third
(benchmarks/stream_client.py). A ratio is that of one round, so what slows the machine cancels; the
median of the rounds counts. Another one begins each round, and a first round does not count.

tokens/s   of all streams, from the first request to the last token
cpu ratio  processor time of a token offline over that with server and client: the ratio where no
           processor is ever idle
added ms   what a token behind the first takes more over HTTP than of the engine, in milliseconds
client     share of one processor that the client took while it read
server     the same of the server, all its threads
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from paredown.engine.llm import LLM
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.kernels.probe import default_num_threads, processor_name
from paredown.models.text.tokenizer import Tokenizer

_NUMBERS = ("One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight")
_BEGINNING = (
    "there was a small house by the sea. An old man lived in it with his daughter, who looked "
    "after the garden, the boat and the hens. One morning in spring"
)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """`token_s` is the time that a token of a stream takes behind the first, the median of all
    streams, `cpu_s` the processor time of all processes that took part."""

    tokens_per_s: float
    token_s: float
    cpu_s: float
    client_share: float = 0.0
    server_share: float = 0.0


def prompts(tokenizer: Tokenizer, num: int) -> list[list[int]]:
    """Returns prompts of text without a common beginning, so that no cache helps. (After tokens at
    random many an answer is bytes without characters, which a stream holds back.)"""
    texts = (f"{_NUMBERS[i % 8]} hundred and {i} years ago {_BEGINNING}" for i in range(num))
    return [tokenizer.encode(text) for text in texts]


def offline(llm: LLM, asked: list[list[int]], num_tokens: int) -> Turn:
    params = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True)
    engine, arrivals = llm.engine, dict[int, list[float]]()
    start_s, start_cpu_s = time.monotonic(), time.process_time()
    for prompt in asked:
        engine.submit(prompt, params)
    while engine.has_work:
        outputs = engine.step()
        now_s = time.monotonic()
        for output in outputs:
            arrivals.setdefault(output.request.id, []).append(now_s)
    seconds = time.monotonic() - start_s
    return Turn(
        tokens_per_s=len(asked) * num_tokens / seconds,
        token_s=time_of_token(arrivals.values(), num_tokens),
        cpu_s=time.process_time() - start_cpu_s,
    )


def over_http(url: str, pid: int, asked: list[list[int]], num_tokens: int) -> Turn:
    host, port = url.removeprefix("http://").split(":")
    body = {"temperature": 0, "max_tokens": num_tokens, "ignore_eos": True, "stream": True}
    bodies = [{"prompt": prompt, **body} for prompt in asked]
    before = busy_s(pid)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.stream_client"],
        input=json.dumps({"host": host, "port": int(port), "bodies": bodies}),
        capture_output=True,
        text=True,
        check=True,
    )
    server_s, found = busy_s(pid) - before, json.loads(done.stdout)
    seconds = found["end_s"] - found["start_s"]
    return Turn(
        tokens_per_s=len(asked) * num_tokens / seconds,
        token_s=time_of_token(found["arrivals_s"], num_tokens),
        cpu_s=server_s + found["cpu_s"],
        client_share=found["cpu_s"] / seconds,
        server_share=server_s / seconds,
    )


def time_of_token(arrivals: Iterable[list[float]], num_tokens: int) -> float:
    """Returns the median of the streams' times from their first event to their last, for a token:
    an event may carry several."""
    return statistics.median((times[-1] - times[0]) / (num_tokens - 1) for times in arrivals)


def busy_s(pid: int) -> float:
    """Returns the processor time that a process has taken, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def served(model: str | None, num_threads: int) -> Iterator[tuple[str, int]]:
    """Runs `paredown serve`; yields its address and process."""
    command = [sys.executable, "-m", "paredown.cli.main", "serve", *([model] if model else [])]
    command += ["--json", "--log-requests", "off", "--port", "0", "--threads", str(num_threads)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            yield re.sub("/$", "", url), process.pid
        finally:
            process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="default: the packaged model")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=default_num_threads())
    parser.add_argument("--json", type=Path, metavar="OUT")
    args = parser.parse_args()
    llm = LLM(args.model, num_threads=args.threads)
    found = []
    with served(args.model, args.threads) as (url, pid):
        for num in args.streams:
            asked = prompts(llm.tokenizer, num)
            turns = list[tuple[Turn, Turn]]()
            for number in range(args.rounds + 1):
                if number % 2:
                    other = over_http(url, pid, asked, args.tokens)
                    turns.append((offline(llm, asked, args.tokens), other))
                else:
                    own = offline(llm, asked, args.tokens)
                    turns.append((own, over_http(url, pid, asked, args.tokens)))
            found.append(row(num, turns[1:]))
    print(f"{processor_name()}, {args.threads} threads, {args.rounds} rounds")
    print("".join(f"{name:>16}" for name in found[0]))
    for one in found:
        print("".join(f"{value:16.4g}" for value in one.values()))
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


def row(num: int, turns: list[tuple[Turn, Turn]]) -> dict[str, float]:
    ratios = [http.tokens_per_s / own.tokens_per_s for own, http in turns]
    https = [asdict(http) for _, http in turns]

    def median(name: str) -> float:
        return float(statistics.median(one[name] for one in https))

    return {
        "streams": num,
        "offline": statistics.median(own.tokens_per_s for own, _ in turns),
        "http": median("tokens_per_s"),
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "most": max(ratios),
        "cpu ratio": statistics.median(own.cpu_s / http.cpu_s for own, http in turns),
        "added ms": statistics.median((http.token_s - own.token_s) * 1e3 for own, http in turns),
        "client": median("client_share"),
        "server": median("server_share"),
    }


if __name__ == "__main__":
    main()
