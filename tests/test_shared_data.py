"""Tests that need data: skipped where none is set, failed where what is set lacks their part."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
NEEDY = """
import pytest
from drivers.shared_data import data_folder, needs_data

@needs_data("texts")
def test_of_data():
    assert data_folder("texts").is_dir()

@pytest.mark.skipif(True, reason="another machine")
def test_of_another_machine():
    raise AssertionError
"""


def run(folder: Path, data: Path | None) -> tuple[int, str]:
    """The exit status and the last line of pytest's output, for a test that needs texts and one
    that is skipped anyway."""
    (folder / "test_needy.py").write_text(NEEDY)
    (folder / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    environment = {name: value for name, value in os.environ.items() if name != "PAREDOWN_DATA"}
    environment |= {"PYTHONPATH": str(TESTS)}
    environment |= {} if data is None else {"PAREDOWN_DATA": str(data)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull]
    done = subprocess.run(
        [*command, "--rootdir", str(folder), str(folder)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, done.stdout.strip().splitlines()[-1].strip("= ")


@pytest.mark.parametrize(
    ("is_set", "has_texts", "status", "outcome"),
    [
        (False, False, 0, "2 skipped"),
        (True, False, 1, "1 skipped, 1 error"),
        (True, True, 0, "1 passed, 1 skipped"),
    ],
)
def test_a_skip_for_want_of_data_fails_where_data_is_set(
    tmp_path: Path, is_set: bool, has_texts: bool, status: int, outcome: str
) -> None:
    data, folder = tmp_path / "data", tmp_path / "tests"
    folder.mkdir()
    data.mkdir()
    if has_texts:
        (data / "texts").mkdir()
    found, line = run(folder, data if is_set else None)
    assert found == status
    assert line.startswith(outcome + " in ")
