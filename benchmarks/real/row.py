"""A row of the page about real models: what is asked, what was found, whether that is enough."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Row:
    """`meets` is None where nothing is asked. A row that `decides` must meet what is asked for the
    run to pass; the others are aims."""

    name: str
    asked: str
    found: str
    meets: bool | None = None
    decides: bool = False


@dataclass(frozen=True, kw_only=True)
class Section:
    """Rows under a title, with a sentence about how they were measured."""

    title: str
    protocol: str
    rows: Sequence[Row]

    @property
    def passed(self) -> bool:
        """Whether every row that decides meets what is asked."""
        return all(row.meets for row in self.rows if row.decides)
