"""The table counts what is neither left out nor rightly refused, and asks for enough of it."""

import pytest
from tools.conformance.outcome import Kind, Outcome
from tools.conformance.report import SuiteReport, as_json, markdown, plain, reports
from tools.conformance.suites import SUITES


def report(kinds: dict[Kind, int], *, least: int = 4, share: float = 0.75) -> SuiteReport:
    outcomes = tuple(
        Outcome(suite="s", test=f"{kind}-{number}", kind=kind, reason=f"{kind}: why")
        for kind, most in kinds.items()
        for number in range(most)
    )
    return SuiteReport(suite="s", outcomes=outcomes, least_counted=least, least_share=share)


@pytest.mark.parametrize(
    ("kinds", "counted", "share", "is_enough"),
    [
        ({"passed": 3, "failed": 1}, 4, 0.75, True),
        ({"passed": 2, "failed": 2}, 4, 0.5, False),
        ({"passed": 3, "left_out": 9, "refused": 9}, 3, 1.0, False),
        ({}, 0, 0.0, False),
    ],
)
def test_counts(kinds: dict[Kind, int], counted: int, share: float, is_enough: bool) -> None:
    found = report(kinds)
    assert (found.num_counted, found.share, found.is_enough) == (counted, share, is_enough)


def test_every_outcome_is_in_the_json_and_every_failure_in_the_table() -> None:
    found = report({"passed": 1, "failed": 2, "left_out": 3, "refused": 4})
    (row,) = as_json([found])
    assert (row["counted"], row["passed"], row["left_out"], row["refused"]) == (3, 1, 3, 4)
    assert len(row["tests"]) == 10
    for number in range(2):
        assert f"s: failed-{number}: failed: why" in plain([found])
    assert "passed-0" not in plain([found])


def test_the_page_tells_how_many_tests_each_rule_leaves_out() -> None:
    assert "| s | left_out | 3 |" in markdown([report({"left_out": 3})])


def test_outcomes_go_to_their_suite() -> None:
    outcomes = [Outcome(suite=name, test="t", kind="passed") for name in SUITES for _ in range(2)]
    for found in reports(list(SUITES.values()), outcomes):
        assert found.number("passed") == 2
