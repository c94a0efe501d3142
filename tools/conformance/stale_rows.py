"""Rows of tables of tests left out that name no test of their suite."""

from collections.abc import Iterable, Sequence

from tools.conformance.left_out_table import prefixes
from tools.conformance.outcome import Outcome
from tools.conformance.suite import Suite


def stale_rows(suites: Iterable[Suite], outcomes: Sequence[Outcome]) -> list[str]:
    """Returns the names in the suites' tables that no test of a whole run begins with."""
    stale = []
    for suite in suites:
        seen = {
            name
            for outcome in outcomes
            if outcome.suite == suite.name
            for name in prefixes(outcome.test)
        }
        stale += [f"{suite.name}: {name}" for name in suite.left_out.rows if name not in seen]
    return stale
