"""Matches modules against a list of compressed-tensors: by name, by "re:" and a regular expression
that matches the beginning of a name, or by the module's class."""

from collections.abc import Iterable
from functools import cached_property

from paredown.formats.module_pattern import ModulePatterns

EXPRESSION = "re:"


class Targets:
    """`named` is the section's `targets` or `ignore`, already checked
    (formats/stored/section.py)."""

    def __init__(self, named: Iterable[str]) -> None:
        self._names = frozenset(named)

    @cached_property
    def _expressions(self) -> list[str]:
        return sorted(expressions(self._names))

    @cached_property
    def _patterns(self) -> ModulePatterns:
        return ModulePatterns(self._expressions, "match")

    def find(self, module: str, kind: str) -> str | None:
        """Returns the target that applies to a module of the class `kind`, or None. As in the
        library, a name takes precedence over a regular expression, and that over a class name."""
        if module in self._names and module != kind:
            return module
        place = self._patterns.first(module)
        if place is not None:
            return EXPRESSION + self._expressions[place]
        return kind if kind in self._names else None


def expressions(named: Iterable[str]) -> list[str]:
    """Returns the regular expressions among them."""
    return [one.removeprefix(EXPRESSION) for one in named if one.startswith(EXPRESSION)]
