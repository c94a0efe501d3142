"""A suite's process writes one outcome for every test, also for those that never ran."""

import pytest
from tools.conformance.outcome import Kind, Outcome, read_outcomes
from tools.conformance.run_suite import run_suite
from tools.conformance.stale_rows import stale_rows
from tools.conformance.suites import SUITES
from tools.conformance.work import Work

SUITE = SUITES["llama.cpp"]
TESTS = """
import pytest
from utils import *

@pytest.mark.parametrize("endpoint", ["/health", "/models"])
def test_that_passes(endpoint):
    assert match_regex("HEALTH|models", endpoint)

def test_that_fails():
    assert ServerPreset.tinyllama2().n_ctx == 1

def test_that_is_skipped():
    pytest.skip("not here")

@pytest.fixture
def broken():
    raise OSError("no place")

def test_whose_fixture_fails(broken):
    pass

def test_server_props():
    raise AssertionError("left out by the table")
"""
UNIMPORTABLE = "import nothing_of_this_name\n\ndef test_infill_without_input_extra(): pass\n"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("suites")
    unit = folder / SUITE.folder / "unit"
    unit.mkdir(parents=True)
    (unit / "test_basic.py").write_text(TESTS)
    (unit / "test_infill.py").write_text(UNIMPORTABLE)
    work = Work(
        folder=tmp_path_factory.mktemp("work"),
        outcomes=folder / "outcomes.jsonl",
        suite=SUITE.name,
    )
    run_suite(SUITE, folder, work)
    return {outcome.test: outcome for outcome in read_outcomes(work.outcomes)}


@pytest.mark.parametrize(
    ("test", "kind", "reason"),
    [
        ("unit/test_basic.py::test_that_passes[/health]", "passed", ""),
        ("unit/test_basic.py::test_that_passes[/models]", "passed", ""),
        ("unit/test_basic.py::test_that_fails", "failed", "AssertionError: assert 512 == 1"),
        ("unit/test_basic.py::test_that_is_skipped", "left_out", "the suite itself"),
        ("unit/test_basic.py::test_whose_fixture_fails", "failed", "OSError: no place"),
        ("unit/test_basic.py::test_server_props", "left_out", "asks a route"),
        ("unit/test_infill.py::test_infill_without_input_extra", "left_out", "asks a route"),
    ],
)
def test_an_outcome(outcomes: dict[str, Outcome], test: str, kind: Kind, reason: str) -> None:
    assert outcomes[test].kind == kind
    assert outcomes[test].reason.startswith(reason)


def test_there_are_no_others(outcomes: dict[str, Outcome]) -> None:
    assert len(outcomes) == 7


def test_rows_without_a_test_are_found(outcomes: dict[str, Outcome]) -> None:
    stale = stale_rows([SUITE], list(outcomes.values()))
    assert "llama.cpp: unit/test_router.py" in stale
    assert "llama.cpp: unit/test_basic.py::test_server_props" not in stale
    assert "llama.cpp: unit/test_infill.py" not in stale
