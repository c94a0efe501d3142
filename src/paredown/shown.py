"""Formats untrusted values for people: on one line, escaped and cut. Floor 0: imports nothing.

Names, fields and texts from files and clients pass through here on their way into an error, the
terminal, a log or an answer. Terminal controls, direction marks and invisible characters are
escaped as in Python (\\x1b, \\u202e). Ordinary letters of all scripts stay.
"""

import re
from collections.abc import Iterable, Mapping, Set

# Enough for a path with a tensor's name.
MAX_CHARS = 300
# The limit for our own sentence around it.
MAX_LINE_CHARS = 1_000
# How many items of a list are shown, and how deep nested lists are shown.
_MAX_ITEMS = 8
_MAX_DEPTH = 3
_MAX_ITEM_CHARS = 200
# Printing a larger integer's digits takes Python long, and beyond 4,300 it refuses.
_MAX_INTEGER_BITS = 400
_DIGITS_PER_BIT = 0.30103

# Characters without width or ink that Python counts as printable: fillers, joiners, variation
# selectors, the Braille blank.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# Characters that change the direction of a line.
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def shown(value: object, max_chars: int = MAX_CHARS) -> str:
    """Returns `value` on one line of at most `max_chars` characters: a text without quotes;
    numbers, lists and mappings as in Python; anything else by `str`. The work is bounded too: only
    the shown part of a list is read."""
    if isinstance(value, str):
        return _line(value, max_chars)
    if _is_data(value):
        return _line(_literal(value, _MAX_DEPTH), max_chars)
    return _line(str(value), max_chars)


def quoted(value: object, max_chars: int = MAX_CHARS) -> str:
    """Does what `shown` does, with quotes around a text."""
    return _line(_literal(value, _MAX_DEPTH, max_chars), max_chars)


def shown_list(values: Iterable[object], max_items: int = _MAX_ITEMS) -> str:
    """Returns the first `max_items` texts of `values` and the number of others: "a, b, and 3
    more"."""
    listed = list(values)
    more = [f"and {len(listed) - max_items:,} more"] if len(listed) > max_items else []
    return ", ".join([*(shown(one, _MAX_ITEM_CHARS) for one in listed[:max_items]), *more])


def shown_lines(*values: str) -> tuple[str, ...]:
    """Returns notes, each on one line."""
    return tuple(shown(one, MAX_LINE_CHARS) for one in values)


def shown_answer(text: str) -> str:
    """Returns a model's answer for a terminal. Lines, tabs and the joiners of scripts and emoji
    stay; terminal controls and direction marks are escaped."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(one if one in "\n\t" or not _steers(one) else _escape(one) for one in text)


def _line(text: str, max_chars: int) -> str:
    short = _cut(text, max_chars)
    if short.isprintable() and (short.isascii() or not _UNSEEN.search(short)):
        return short
    plain = (one if one.isprintable() and not _UNSEEN.match(one) else _escape(one) for one in short)
    return _cut("".join(plain), max_chars)


def _cut(text: str, max_chars: int) -> str:
    """Keeps both ends of a long text, since the end of a message says what is wrong."""
    if len(text) <= max_chars:
        return text
    mark = f" [{len(text) - max_chars:,} characters left out] "
    room = max(0, max_chars - len(mark))
    tail = room // 3
    return (text[: room - tail] + mark + text[len(text) - tail :])[:max_chars]


def _escape(one: str) -> str:
    number = ord(one)
    if number < 0x100:
        return _SHORT.get(one, f"\\x{number:02x}")
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _steers(one: str) -> bool:
    """Returns whether a terminal would act on it: controls, line separators, surrogates, direction
    marks, tags."""
    number = ord(one)
    is_control = number < 0x20 or 0x7F <= number < 0xA0 or number in (0x2028, 0x2029)
    return is_control or one in _BIDI or 0xD800 <= number < 0xE000 or number >= 0xE0000


def _is_data(value: object) -> bool:
    kinds = (bool, int, float, bytes, bytearray, Mapping, list, tuple, Set)
    return value is None or isinstance(value, kinds)


def _literal(value: object, depth: int, max_chars: int = _MAX_ITEM_CHARS) -> str:
    """Returns `value` as in Python, limited to what is shown."""
    if isinstance(value, str):
        return repr(_cut(value, max_chars - 2))
    if isinstance(value, int) and value.bit_length() > _MAX_INTEGER_BITS:
        return f"an integer of about {int(value.bit_length() * _DIGITS_PER_BIT) + 1:,} digits"
    if isinstance(value, bytes | bytearray):
        more = f" and {len(value) - max_chars:,} bytes more" if len(value) > max_chars else ""
        return repr(bytes(value[:max_chars])) + more
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, Mapping):
        items = (
            f"{_literal(key, depth - 1)}: {_literal(value[key], depth - 1)}"
            for key in _first(value)
        )
        return _enclosed("{", items, "}", len(value), depth)
    if isinstance(value, list):
        return _enclosed(
            "[", (_literal(x, depth - 1) for x in _first(value)), "]", len(value), depth
        )
    if isinstance(value, tuple):
        comma = "," if len(value) == 1 else ""
        items = (_literal(one, depth - 1) for one in _first(value))
        return _enclosed("(", items, f"{comma})", len(value), depth)
    if isinstance(value, Set) and value:
        items = (_literal(one, depth - 1) for one in _first(value))
        return _enclosed("{", items, "}", len(value), depth)
    return repr(value)


def _first(values: Iterable[object]) -> list[object]:
    return [one for one, _ in zip(values, range(_MAX_ITEMS), strict=False)]


def _enclosed(left: str, items: Iterable[str], right: str, num: int, depth: int) -> str:
    if num and depth <= 0:
        return f"{left}... {num:,} of them{right}"
    more = [f"... {num - _MAX_ITEMS:,} more"] if num > _MAX_ITEMS else []
    return left + ", ".join([*items, *more]) + right
