"""`paredown synthesize` as it is called: killed and started again, and beside our own server."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fakes.teacher_server import FakeTeacher, Fault, running_teacher
from paredown.cli.main import main
from paredown.distill.data.training_file import read_records

NUM_PROMPTS, CONCURRENCY = 40, 4


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_text("".join(f"What is number {number}?\n" for number in range(NUM_PROMPTS)))
    return path


def words(url: str, prompts: Path, *more: str) -> list[str]:
    out = str(prompts.parent / "out.jsonl")
    place = ["--address", url, "--model", "big", "--concurrency", str(CONCURRENCY)]
    return ["synthesize", *place, "--input", str(prompts), "-o", out, *more]


def wait_until_asked(teacher: FakeTeacher, num: int) -> None:
    deadline_s = time.monotonic() + 60
    while teacher.num_asked < num:
        assert time.monotonic() < deadline_s, "too few requests"
        time.sleep(0.002)


def test_it_prints_what_came_of_it(prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running_teacher(faults=[Fault(status=400, times=3)]) as teacher:
        assert main(words(teacher.url, prompts)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for part in ("37 examples", "40 requests", "self-BLEU", "status 400 (3)", "92.5%"):
        assert part in shown
    assert len((prompts.parent / "out.jsonl").read_text().splitlines()) == 37


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_was_killed_goes_on_and_asks_nothing_twice(
    number: int, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each request that had an answer is never asked again; only those that were under way are."""
    with running_teacher(delay_s=0.02) as teacher:
        command = [sys.executable, "-m", "paredown.cli.main", *words(teacher.url, prompts)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            wait_until_asked(teacher, NUM_PROMPTS // 2)
            process.send_signal(number)
            _, told = process.communicate(timeout=30)
        expected = -number if number == signal.SIGKILL else 128 + number
        assert process.returncode == expected, told
        assert "Traceback" not in told
        log = prompts.parent / "out.jsonl.asked"
        known = sum(b'"answered"' in line for line in log.read_bytes().splitlines())
        assert known >= NUM_PROMPTS // 2 - CONCURRENCY
        before = teacher.num_asked
        assert main(words(teacher.url, prompts, "--json")) == 0
        made = json.loads(capsys.readouterr().out)
        assert made["num_examples"] == NUM_PROMPTS == len(teacher.asked)
        assert teacher.num_asked - before == made["num_requests"] == NUM_PROMPTS - known
        assert sum(num - 1 for num in teacher.asked.values()) <= CONCURRENCY
        # What the killed run may have spent counts, answered or not.
        assert made["num_tokens"] >= teacher.num_tokens
    lines = (prompts.parent / "out.jsonl").read_text().splitlines()
    assert len(set(lines)) == NUM_PROMPTS


def test_a_key_comes_from_the_environment_and_goes_nowhere_else(
    prompts: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEACHER_KEY", "sk-very-secret")
    refusal = Fault(status=401, body=b'{"error": {"message": "no such key: sk-very-secret"}}')
    with running_teacher(faults=[refusal]) as teacher:
        more = ["--api-key-variable", "TEACHER_KEY", "--json"]
        assert main(words(teacher.url, prompts, *more)) == 2
        assert teacher.headers[0]["Authorization"] == "Bearer sk-very-secret"
        assert teacher.num_asked <= CONCURRENCY
    told = "".join(capsys.readouterr())
    assert "no such key: ***" in told
    files = [path.read_text() for path in prompts.parent.iterdir()]
    assert not any("sk-very-secret" in text for text in [told, *files])


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--ask", "wonder"], "invalid choice"),
        (["--ask", "expand"], "--num N"),
        (["--address", "here"], "not the address"),
        (["--input", "gone.txt"], "cannot be read"),
        (["--concurrency", "0"], "--concurrency"),
        (["--max-tokens-total", "0"], "no tokens"),
        (["--requests-per-minute", "0"], "may ever start"),
        (["--timeout-s", "0"], "no answer can come"),
        (["--api-key-variable", "NO_SUCH_KEY"], "holds no key"),
    ],
)
def test_bad_options_are_one_line(
    more: list[str], says: str, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words("http://127.0.0.1:9", prompts, *more)) == 2
    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == 1
    assert {path.name for path in prompts.parent.iterdir()} == {"prompts.txt"}


@contextmanager
def served_model() -> Iterator[tuple[str, str]]:
    """The address and the name of the built-in model, behind our own server."""
    command = [sys.executable, "-m", "paredown.cli.main", "serve", "--port", "0", "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*command, "--threads", "1"], stdout=subprocess.PIPE, env=environment
    ) as server:
        assert server.stdout is not None
        try:
            told = json.loads(server.stdout.readline())
            yield told["url"], told["model"]
        finally:
            server.terminate()


def test_our_own_server_is_a_teacher(prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The built-in model's answers can be read as training data."""
    prompts.write_text("What is a river?\nTell a story.\nWho was king?\n")
    with served_model() as (url, model):
        more = ["--model", model, "--answer-tokens", "12", "--keep-cut", "--json"]
        assert main(words(url, prompts, *more, "--form", "completion")) == 0
        made = json.loads(capsys.readouterr().out)
    assert (made["num_examples"], made["num_requests"], made["failures"]) == (3, 3, {})
    assert 3 * 12 <= made["num_tokens"] <= 3 * 100
    records = list(read_records(prompts.parent / "out.jsonl"))
    assert [one.prompt for one in records] == prompts.read_text().splitlines()
