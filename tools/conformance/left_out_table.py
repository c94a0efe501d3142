"""A table of tests that are left out, by the beginning of their names."""

from collections.abc import Mapping
from dataclasses import dataclass

from tools.conformance.outcome import LeftOut


@dataclass(frozen=True, kw_only=True)
class LeftOutTable:
    """Names are `file.py`, `file.py::test` or `file.py::test[case]`, with the file's path in its
    suite. The longest name that a test begins with counts; `None` keeps a case of a test whose
    other cases are left out."""

    rows: Mapping[str, LeftOut | None]

    def find(self, test: str) -> LeftOut | None:
        """Returns why the test is left out, or None where it counts."""
        return next((self.rows[name] for name in prefixes(test) if name in self.rows), None)


def prefixes(test: str) -> list[str]:
    """Returns the names that stand for a test, the longest first."""
    plain = test.split("[", 1)[0]
    parts = plain.split("::")
    shorter = ["::".join(parts[:size]) for size in range(len(parts), 0, -1)]
    return [test, *shorter] if plain != test else shorter
