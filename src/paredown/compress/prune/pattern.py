"""Patterns: which share of a weight becomes zero, and where its zeros may lie.

"50", "62.5"     a share of all weights, in percent, anywhere in the matrix
"2of4", "8of16"  at most n of every m neighbours along the input stay
"""

import re
from dataclasses import dataclass

from paredown.errors import ConfigError

_PERCENT = re.compile(r"\d{1,3}(\.\d{1,3})?")
_N_OF_M = re.compile(r"(\d{1,3})of(\d{1,3})")


@dataclass(frozen=True, kw_only=True)
class Share:
    """A share of the weights in [0, 1) becomes zero. Raises ConfigError for any other."""

    share: float

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise ConfigError(
                "a share of the weights to remove lies outside [0, 1)",
                seen=f"{self.share:g}",
                remedy="Give a number from 0 to below 1: 0.5 removes half.",
            )

    @property
    def name(self) -> str:
        return f"{100 * self.share:.3f}".rstrip("0").rstrip(".")

    def num_removed(self, num_weights: int) -> int:
        """Returns how many of that many weights become zero."""
        return round(self.share * num_weights)


@dataclass(frozen=True, kw_only=True)
class NOfM:
    """At most `n` of every `m` neighbours along the input stay. Raises ConfigError unless
    0 < n <= m."""

    n: int
    m: int

    def __post_init__(self) -> None:
        if not 0 < self.n <= self.m:
            raise ConfigError(
                "a pattern keeps more weights than it looks at, or none",
                seen=self.name,
                remedy="Write n of m with 0 < n <= m: 2of4 keeps two of every four.",
            )

    @property
    def share(self) -> float:
        return 1 - self.n / self.m

    @property
    def name(self) -> str:
        return f"{self.n}of{self.m}"

    def check_columns(self, num_columns: int) -> None:
        """Raises ConfigError for columns that `m` does not divide."""
        if num_columns % self.m:
            raise ConfigError(
                f"a weight has columns that do not come in {self.m}s",
                seen=f"{num_columns} columns for {self.name}",
                remedy="Choose a pattern whose second number divides the columns, or a share (50).",
            )


Pattern = Share | NOfM


def find_pattern(name: str) -> Pattern | None:
    """Returns the pattern of that name, None if it names none. Raises ConfigError for numbers that
    make no pattern."""
    if _PERCENT.fullmatch(name):
        return Share(share=float(name) / 100)
    found = _N_OF_M.fullmatch(name)
    return NOfM(n=int(found[1]), m=int(found[2])) if found else None
