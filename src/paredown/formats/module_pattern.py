"""Regular expressions over the names of modules, from files and recipes.

Python's engine tries all ways through a pattern: on a name of forty letters `(([a-z0-9_.])+)+!`
never finishes. RE2 takes time linear in the name, but has no lookarounds. The lookaheads at the
beginning of a pattern, which say what a name must not contain, are therefore tested here one by
one.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

# Where a pattern must match: from the beginning as re.match, anywhere, or the whole name.
Where = Literal["match", "search", "fullmatch"]
MAX_PATTERN_CHARS = 10_000
MAX_PATTERNS = 4_096
# RE2 rejects larger counts, or takes them for literal characters.
_TOO_OFTEN = re.compile(r"(?<!\\)(?:\\\\)*\{(?:,|\d*,?\d{4,}|\d{4,},)")
# The name of a module as re.escape writes it.
_NAME = re.compile(r"(?:\w|\\?-|\\\.)+", re.ASCII)
_MAX_SHOWN_CHARS = 100
# The number of patterns that are first tested together.
_NUM_TOGETHER = 64
_LOOKAHEADS = ("(?!", "(?=")
_LOOKAROUND = re.compile(r"\(\?<?[!=]")
_LOOKAROUNDS = "lookarounds are read at the beginning of a pattern alone"
_Test = Callable[[bytes], object]


class PatternError(ValueError):
    """A pattern is not valid; the message says which, and why."""


class UnreadPatternError(PatternError):
    """A pattern may be valid but is not supported here."""


@dataclass(frozen=True, kw_only=True)
class _Branch:
    """`rest` must match, and each of `looks` must match or must not, as it says."""

    looks: tuple[tuple[bool, _Test], ...]
    rest: _Test

    def matches(self, name: bytes) -> bool:
        return all((test(name) is not None) == wanted for wanted, test in self.looks) and (
            self.rest(name) is not None
        )


class ModulePattern:
    """One pattern. Raises PatternError."""

    def __init__(self, pattern: str, where: Where) -> None:
        _check(pattern)
        self.text = pattern
        self.where = where
        self.literal = _literal(pattern, where)
        self.has_looks = any(look in pattern for look in _LOOKAHEADS)
        if self.literal is not None:
            return
        if self.has_looks:
            self._branches = tuple(_branch(one, where) for one in _split(pattern))
        else:
            self._branches = (_Branch(looks=(), rest=_compile(pattern, where)),)

    def matches(self, name: str) -> bool:
        if self.literal is not None:
            return name == self.literal
        data = name.encode("utf-8", "surrogatepass")
        return any(branch.matches(data) for branch in self._branches)


class ModulePatterns:
    """Patterns in their order. Raises PatternError."""

    def __init__(self, patterns: Sequence[str], where: Where) -> None:
        found = [module_pattern(pattern, where) for pattern in patterns]
        self._literals = dict[str, int]()
        expressions = list[tuple[int, ModulePattern]]()
        for place, one in enumerate(found):
            if one.literal is None:
                expressions.append((place, one))
            else:
                self._literals.setdefault(one.literal, place)
        if len(expressions) > MAX_PATTERNS:
            raise UnreadPatternError(f"{len(expressions):,} patterns, at most {MAX_PATTERNS:,}")
        self._groups = [
            (_together([one for _, one in group]), group)
            for group in (
                expressions[start : start + _NUM_TOGETHER]
                for start in range(0, len(expressions), _NUM_TOGETHER)
            )
        ]

    def first(self, name: str) -> int | None:
        """Returns the index of the first pattern that matches."""
        literal = self._literals.get(name)
        data = name.encode("utf-8", "surrogatepass")
        for test, group in self._groups:
            if literal is not None and group[0][0] > literal:
                break
            if test is None or test(data) is not None:
                for place, one in group:
                    if literal is not None and place > literal:
                        return literal
                    if one.matches(name):
                        return place
        return literal


@lru_cache(maxsize=4 * MAX_PATTERNS)
def module_pattern(pattern: str, where: Where) -> ModulePattern:
    """Compiles a pattern. Raises PatternError."""
    return ModulePattern(pattern, where)


def _check(pattern: str) -> None:
    if len(pattern) > MAX_PATTERN_CHARS:
        raise UnreadPatternError(f"{len(pattern):,} characters, at most {MAX_PATTERN_CHARS:,}")
    if found := _TOO_OFTEN.search(pattern):
        shown = _shown(found[0].lstrip("\\"))
        raise UnreadPatternError(f"{_shown(pattern)}: a repeat of more than 999 times, {shown}")


def _literal(pattern: str, where: Where) -> str | None:
    """Returns the only name that matches, if the pattern has just letters, digits and escaped
    dots."""
    is_whole = where == "fullmatch" or (pattern.startswith("^") and pattern.endswith("$"))
    text = pattern.removeprefix("^").removesuffix("$")
    return text.replace("\\", "") if is_whole and _NAME.fullmatch(text) else None


def _branch(pattern: str, where: Where) -> _Branch:
    """Parses a pattern without a bar outside of groups, and splits off its leading lookaheads."""
    anchor = "^" if pattern.startswith("^") else ""
    rest, looks = pattern.removeprefix("^"), list[tuple[bool, _Test]]()
    while rest.startswith(_LOOKAHEADS):
        end = _group_end(rest)
        looks.append((rest.startswith("(?="), _compile(rest[3 : end - 1], "match")))
        rest = rest[end:]
    if looks and where == "search" and not anchor:
        raise UnreadPatternError(f"{_shown(pattern)}: a lookahead that may stand anywhere")
    return _Branch(looks=tuple(looks), rest=_compile(anchor + rest, where))


def _together(group: Sequence[ModulePattern]) -> _Test | None:
    """Returns a test whether any of them matches, or None where they cannot be tested at once."""
    if len(group) < 2 or any(one.has_looks for one in group):
        return None
    try:
        return _compile("|".join(f"(?:{one.text})" for one in group), group[0].where)
    except PatternError:
        return None


def _compile(pattern: str, where: Where) -> _Test:
    # A model that names no pattern loads without this import.
    import re2

    options = re2.Options()
    options.log_errors, options.never_capture = False, True
    try:
        test: _Test = getattr(re2.compile(pattern.encode(), options), where)
    except UnicodeEncodeError as error:
        raise PatternError(f"{_shown(pattern)}: not valid Unicode") from error
    except re2.error as error:
        if _LOOKAROUND.search(pattern):
            raise UnreadPatternError(f"{_shown(pattern)}: {_LOOKAROUNDS}") from error
        raise PatternError(f"{_shown(pattern)}: {_reason(error)}") from error
    return test


def _reason(error: Exception) -> str:
    problem = error.args[0] if error.args else "it is not valid"
    text = problem.decode(errors="replace") if isinstance(problem, bytes) else str(problem)
    return _shown(text)


def _split(pattern: str) -> list[str]:
    """Splits the pattern at bars outside of classes and groups."""
    branches, start, at, depth = list[str](), 0, 0, 0
    while at < len(pattern):
        letter = pattern[at]
        if letter == "\\":
            at += 1
        elif letter == "[":
            at = _class_end(pattern, at) - 1
        elif letter in "()":
            depth += 1 if letter == "(" else -1
        elif letter == "|" and not depth:
            branches.append(pattern[start:at])
            start = at + 1
        at += 1
    return [*branches, pattern[start:]]


def _group_end(pattern: str) -> int:
    """Returns the index after the group with which the pattern begins."""
    depth = at = 0
    while at < len(pattern):
        letter = pattern[at]
        if letter == "\\":
            at += 1
        elif letter == "[":
            at = _class_end(pattern, at) - 1
        elif letter in "()":
            depth += 1 if letter == "(" else -1
            if not depth:
                return at + 1
        at += 1
    raise PatternError(f"{_shown(pattern)}: a group without an end")


def _class_end(pattern: str, start: int) -> int:
    at = start + 1
    at += pattern[at : at + 1] == "^"
    at += pattern[at : at + 1] == "]"  # as the first character it is literal
    while at < len(pattern) and pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at + 1


def _shown(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "..."
