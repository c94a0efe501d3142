"""The log of steps: a line each, from the first, also of a run that was resumed."""

import csv
from dataclasses import fields, replace
from pathlib import Path

import pytest

from paredown.distill.run_log import RunLog, StepRecord
from paredown.errors import OutputError

FIRST = StepRecord(
    step=1,
    num_tokens=64,
    num_targets=60,
    loss=2.5,
    gradient_norm=0.25,
    learning_rate=1e-4,
    elapsed_s=0.5,
)


def lines(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_steps_that_a_resumed_run_repeats_are_told_once(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    log = RunLog(path, [])
    for step in range(1, 5):
        log.add(replace(FIRST, step=step))
    resumed = RunLog(path, [FIRST])
    resumed.add(replace(FIRST, step=2))
    names, *rows = lines(path)
    assert names == [field.name for field in fields(StepRecord)]
    assert [row[0] for row in rows] == ["1", "2"]
    assert float(rows[1][names.index("learning_rate")]) == 1e-4


def test_without_a_path_there_is_no_file(tmp_path: Path) -> None:
    RunLog(None, []).add(FIRST)
    assert not list(tmp_path.iterdir())


def test_a_log_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="could not be written"):
        RunLog(tmp_path / "none" / "log.csv", [])
    log = RunLog(tmp_path / "log.csv", [])
    (tmp_path / "log.csv").unlink()
    (tmp_path / "log.csv").mkdir()
    with pytest.raises(OutputError, match="log of steps"):
        log.add(FIRST)
