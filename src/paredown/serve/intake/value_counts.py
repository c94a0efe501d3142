"""ValueCounts: counts what a JSON body will build, as it arrives and before anything is built."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ValueLimits:
    """The most that a body may hold: strings (including keys), lists and objects, and values after
    a comma."""

    num_strings: int
    num_containers: int
    num_values: int


class ValueCounts:
    """Counts in linear time without a look at single characters: a megabyte takes 1 to 10 ms.
    Commas inside strings do not count. Invalid JSON gets some count; parsing then reports it."""

    def __init__(self) -> None:
        self.num_strings = 0
        self.num_containers = 0
        self.num_values = 0
        self._is_in_string = False
        # A trailing backslash, whose next character is in the next part.
        self._tail = b""

    def add(self, part: bytes) -> None:
        """Counts the next part of the body."""
        part = self._tail + part
        num_backslashes = len(part) - len(part.rstrip(b"\\"))
        self._tail = b"\\" if num_backslashes % 2 else b""
        part = part.removesuffix(self._tail)
        if b"\\" in part:
            # Without escapes, every quote begins or ends a string.
            part = part.replace(b"\\\\", b"").replace(b'\\"', b"")
        pieces = part.split(b'"')
        outside = b" ".join(pieces[self._is_in_string :: 2])
        num_quotes = len(pieces) - 1
        self.num_strings += (num_quotes + (not self._is_in_string)) // 2
        self._is_in_string ^= num_quotes % 2 == 1
        self.num_containers += outside.count(b"[") + outside.count(b"{")
        self.num_values += outside.count(b",")

    def excess(self, limits: ValueLimits) -> str | None:
        """Returns which limit is exceeded, or None."""
        counts = {
            "strings": (self.num_strings, limits.num_strings),
            "lists and objects": (self.num_containers, limits.num_containers),
            "values": (self.num_values, limits.num_values),
        }
        for name, (num, most) in counts.items():
            if num > most:
                return f"more than {most} {name}"
        return None
