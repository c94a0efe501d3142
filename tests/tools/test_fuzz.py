"""The fuzzers find what breaks a promise, keep the input, and say how it is run again."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tools.fuzz import seeds
from tools.fuzz.__main__ import _json, _table
from tools.fuzz.mutate import MAX_BYTES, Mutator
from tools.fuzz.processes import CORPUS, NATIVE, ROOT, Report, fuzz, replay, replay_command
from tools.fuzz.target import Target
from tools.fuzz.targets import TARGETS
from tools.fuzz.watch import MAX_SECONDS, Watch

from paredown.errors import CheckpointError

MOST_CORPUS_BYTES = 200_000


def odd(path: Path) -> None:
    """Fails in a way of its own for each first letter."""
    data = path.read_bytes()
    if data.startswith(b"d"):
        raise KeyError("damaged")
    if data.startswith(b"s"):
        start = time.process_time()
        while time.process_time() - start < MAX_SECONDS + 0.1:
            pass
    if data.startswith(b"m"):
        np.ones(1100 << 20, np.uint8)
    if data.startswith(b"p"):
        raise BaseException("a panic is no Exception")
    if data.startswith(b"v"):
        raise ValueError("refused")
    raise CheckpointError("it is damaged", seen=data, remedy="Download it again.")


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    target = Target(
        name="odd",
        run=odd,
        seeds=lambda: [b"a"],
        file_name="a.txt",
        refusals=(ValueError,),
    )
    (tmp_path / "failures").mkdir()
    return Watch(target, tmp_path, tmp_path / "failures")


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"damage", "KeyError"), (b"slow", " s"), (b"memory", " MB"), (b"panic", "BaseException")],
)
def test_what_breaks_a_promise_is_kept(watch: Watch, data: bytes, said: str) -> None:
    watch.run(data)
    ((path, what),) = watch.tally.failures.items()
    assert Path(path).read_bytes() == data
    assert said in what


def test_a_refusal_is_none(watch: Watch) -> None:
    watch.run(b"a")
    watch.run(b"value")
    assert not watch.tally.failures
    assert watch.tally.inputs == 2


def test_one_failure_of_a_kind_is_kept(watch: Watch) -> None:
    watch.run(b"damage")
    watch.run(b"dam")
    assert len(watch.tally.failures) == 1


def test_fuzzing_reaches_a_fault(watch: Watch) -> None:
    watch.run_for(3.0, [b"c", b"e"], seed=1)
    assert any("KeyError" in what for what in watch.tally.failures.values())


def test_the_same_seed_makes_the_same_inputs() -> None:
    corpus = list(seeds.configs())
    made = [
        [mutator.changed(corpus, is_json=True) for _ in range(50)]
        for mutator in (Mutator(3), Mutator(3))
    ]
    assert made[0] == made[1]
    assert len(set(made[0])) > 25
    assert max(map(len, made[0])) <= MAX_BYTES


@pytest.mark.parametrize("name", list(TARGETS))
def test_fuzzing_begins_with_files_that_are_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "failures").mkdir()
    watch = Watch(TARGETS[name], tmp_path, tmp_path / "failures")
    said = [watch.run(one) for one in TARGETS[name].seeds()]
    assert "accepted" in said
    assert not watch.tally.failures


def test_a_reader_is_fuzzed_in_a_process(tmp_path: Path) -> None:
    report = fuzz("config", 6.0, seed=1, failures=tmp_path)
    assert report.inputs > 10
    assert not report.failures


def test_an_input_is_run_again(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"{")
    ended = replay("config", path, tmp_path)
    assert ended.returncode == 0
    assert "is not valid JSON" in ended.stdout


def test_the_report_tells_how_to_run_a_failing_input(tmp_path: Path) -> None:
    report = Report(reader="config", inputs=7, seconds=2.0, failures={"runs/x": "KeyError"})
    assert "config: KeyError" in _table([report])
    assert replay_command("config", "runs/x") in _table([report])
    (row,) = json.loads(_json([report]))
    assert row["inputs_per_s"] == 3.5
    assert "--target config --replay runs/x" in row["replay"][0]


def test_help_tells_what_minutes_are() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tools.fuzz", "--help"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert "of all readers together" in ended.stdout


def test_the_corpus_is_small() -> None:
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert {path.parent.name for path in files} == set(NATIVE)
    assert sum(path.stat().st_size for path in files) < MOST_CORPUS_BYTES
