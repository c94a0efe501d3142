r"""Decides whether a tokenizer's regular expression takes time linear in the text.

Oniguruma, the library's engine, backtracks: `(\w+)+!` takes 2^n steps on n letters, and `\s+$`
takes n^2 on n spaces. A pattern counts as linear only if each branch either ends soon or ends with
a part that cannot fail. Other patterns may be linear too.
"""

import re
from functools import lru_cache

from paredown.models.gguf.words import LINEAR_WORDS

# They read spaces and may fail then. Where the next branch that takes one takes all, these are read
# twice. After a branch between that takes a single one they would be read again, and so at each.
_SPACES = r"\s+"
_SCANS_OF_SPACES = frozenset({r"\s*[\r\n]+", r"\s*[\r\n]", r"\s*[\r\n]{1,}", r"\s+(?!\S)"})
# Groups of a few letters, and lookarounds of one letter.
_SHORT_GROUPS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
    r"(?i:[sdmt]|ll|ve|re)",
    r"(?:[sdmt]|ll|ve|re)",
    r"(?!\p{L})",
)
_ATOM = re.compile(
    "|".join(map(re.escape, _SHORT_GROUPS))
    + r"|\\[pP]\{\^?\w+\}|\\x\{[0-9A-Fa-f]{1,8}\}|\\[sSdDwWrntfvhH]|\\[^A-Za-z0-9]"
    + r"|[^\\()\[\]{}|?*+^$]"
)
_REPEAT = re.compile(r"(?P<sign>[?*+])\+?|\{(?P<least>\d{1,2})(?P<comma>,(?P<most>\d{1,2})?)?\}")
# Limits on the repeats of a bounded atom, and on the number of atoms with variable repeats.
_MAX_REPEAT = 16
_MAX_CHOICES = 3
_MAX_PATTERN_CHARS = 10_000


@lru_cache(maxsize=256)
def is_linear(pattern: str) -> bool:
    if pattern in LINEAR_WORDS:
        return True
    if not pattern or len(pattern) > _MAX_PATTERN_CHARS:
        return False
    branches = _branches(pattern)
    if branches is None:
        return False
    for place, branch in enumerate(branches):
        is_scan = branch in _SCANS_OF_SPACES and _takes_spaces(branches[place + 1 :])
        if not is_scan and not _ends_soon(branch):
            return False
    return True


def _takes_spaces(branches: list[str]) -> bool:
    """Whether the first that is no scan takes all spaces that there are."""
    return next((one for one in branches if one not in _SCANS_OF_SPACES), None) == _SPACES


def _branches(pattern: str) -> list[str] | None:
    """Splits the pattern at bars outside classes and groups; returns None where it is not
    understood."""
    branches, start, at, depth = list[str](), 0, 0, 0
    while at < len(pattern):
        letter = pattern[at]
        if letter == "\\":
            at += 1
        elif letter == "[":
            end = _class_end(pattern, at)
            if end is None:
                return None
            at = end - 1
        elif letter in "()":
            depth += 1 if letter == "(" else -1
        elif letter == "|" and not depth:
            branches.append(pattern[start:at])
            start = at + 1
        at += 1
    return [*branches, pattern[start:]]


def _class_end(pattern: str, start: int) -> int | None:
    """Returns the end of the class that begins at `start`."""
    depth, at = 0, start
    while at < len(pattern):
        letter = pattern[at]
        if letter == "\\":
            at += 1
        elif letter == "[":
            if pattern[at + 1 : at + 2] == "]" or pattern[at + 1 : at + 3] == "^]":
                return None  # readers differ about what this is
            depth += 1
        elif letter == "]":
            depth -= 1
            if not depth:
                return at + 1
        at += 1
    return None


def _ends_soon(branch: str) -> bool:
    """Returns whether a try costs a few steps, or as many as the characters that it takes."""
    at, num_choices, is_taking = 0, 0, False
    while at < len(branch):
        end = _class_end(branch, at) if branch[at] == "[" else _atom_end(branch, at)
        if end is None:
            return False
        found = _REPEAT.match(branch, end)
        least, most = (1, 1) if found is None else _bounds(found)
        at = end if found is None else found.end()
        if branch[at : at + 1] in ("?", "*", "+", "{"):
            return False  # a repeated repeat
        if is_taking and least:
            return False
        if least > _MAX_REPEAT:
            return False
        if most is None or most > _MAX_REPEAT:
            is_taking = True
        elif most > least:
            num_choices += 1
    return num_choices <= _MAX_CHOICES


def _atom_end(branch: str, at: int) -> int | None:
    found = _ATOM.match(branch, at)
    return None if found is None else found.end()


def _bounds(found: re.Match[str]) -> tuple[int, int | None]:
    """Returns the smallest and the largest number of repeats; None is unbounded."""
    if found["sign"] is not None:
        return {"?": (0, 1), "*": (0, None), "+": (1, None)}[found["sign"]]
    least = int(found["least"])
    if found["comma"] is None:
        return least, least
    return least, None if found["most"] is None else int(found["most"])
