"""The table of a run, and whether it reaches what is asked of each suite."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tools.conformance.outcome import Outcome
from tools.conformance.suite import Suite

_HEAD = ("suite", "left out", "refused rightly", "counted", "passed", "share", "asked")


@dataclass(frozen=True, kw_only=True)
class SuiteReport:
    """The counts of one suite. What counts is neither left out nor rightly refused."""

    suite: str
    outcomes: tuple[Outcome, ...]
    least_counted: int
    least_share: float

    def number(self, kind: str) -> int:
        return sum(outcome.kind == kind for outcome in self.outcomes)

    @property
    def num_counted(self) -> int:
        return self.number("passed") + self.number("failed")

    @property
    def share(self) -> float:
        return self.number("passed") / self.num_counted if self.num_counted else 0.0

    @property
    def is_enough(self) -> bool:
        return self.num_counted >= self.least_counted and self.share >= self.least_share

    def cells(self) -> tuple[str, ...]:
        return (
            self.suite,
            str(self.number("left_out")),
            str(self.number("refused")),
            str(self.num_counted),
            str(self.number("passed")),
            f"{self.share:.1%}",
            f"{self.least_counted} counted, {self.least_share:.0%}",
        )


def reports(suites: Sequence[Suite], outcomes: Sequence[Outcome]) -> list[SuiteReport]:
    return [
        SuiteReport(
            suite=suite.name,
            outcomes=tuple(outcome for outcome in outcomes if outcome.suite == suite.name),
            least_counted=suite.least_counted,
            least_share=suite.least_share,
        )
        for suite in suites
    ]


def markdown(rows: Sequence[SuiteReport]) -> str:
    """Returns the table of all suites, and one of why tests are left out."""
    lines = [_row(_HEAD), _row(["---"] * len(_HEAD)), *(_row(row.cells()) for row in rows)]
    left_out = Counter(
        (row.suite, outcome.reason.split(":", 1)[0])
        for row in rows
        for outcome in row.outcomes
        if outcome.kind == "left_out"
    )
    lines += ["", _row(("suite", "left out because it", "tests")), _row(["---"] * 3)]
    lines += [_row((suite, rule, str(number))) for (suite, rule), number in left_out.items()]
    return "\n".join(lines) + "\n"


def plain(rows: Sequence[SuiteReport]) -> str:
    """Returns the table for a terminal, and what failed."""
    cells = [_HEAD, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEAD))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]
    for row in rows:
        lines += [
            f"{row.suite}: {outcome.test}: {outcome.reason}"
            for outcome in row.outcomes
            if outcome.kind == "failed"
        ]
    return "\n".join(lines)


def as_json(rows: Sequence[SuiteReport]) -> list[dict[str, Any]]:
    return [
        {
            "suite": row.suite,
            "counted": row.num_counted,
            "passed": row.number("passed"),
            "left_out": row.number("left_out"),
            "refused": row.number("refused"),
            "share": row.share,
            "is_enough": row.is_enough,
            "tests": [
                {name: value for name, value in asdict(outcome).items() if name != "suite"}
                for outcome in row.outcomes
            ],
        }
        for row in rows
    ]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
