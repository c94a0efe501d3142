"""Strings of an index: an id or a text for each document, UTF-8 one after the other."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paredown.retrieve.stored_bytes import Bytes, BytesWriter, StoredBytes
from paredown.retrieve.vectors import Ints

# What documents may bring beside their vectors.
STRING_FILES = ("ids", "texts")


def string_files(name: str) -> tuple[str, str]:
    """Returns the names of the files of the strings and of where each one begins."""
    return f"{name}.bin", f"{name}.offsets.bin"


class StringWriter:
    """Files are closed with `stack`."""

    def __init__(self, folder: Path, name: str, stack: ExitStack) -> None:
        self._names = string_files(name)
        self._bytes, self._offsets = (
            stack.enter_context(BytesWriter(folder / one)) for one in self._names
        )
        self._end = 0
        self._offsets.write(np.zeros(1, np.int64))

    def add(self, strings: Sequence[str]) -> None:
        """Raises OSError. Half a character becomes a question mark."""
        encoded = [one.encode(errors="replace") for one in strings]
        ends = self._end + np.cumsum([len(one) for one in encoded], dtype=np.int64)
        self._bytes.write(np.frombuffer(b"".join(encoded), np.uint8))
        self._offsets.write(ends)
        self._end = int(ends[-1]) if len(ends) else self._end

    def finish(self) -> dict[str, StoredBytes]:
        """Returns the files by name. Raises OSError."""
        writers = (self._bytes, self._offsets)
        return {name: one.finish() for name, one in zip(self._names, writers, strict=True)}


@dataclass(frozen=True, kw_only=True)
class Strings:
    """Strings as they lie in mapped files. Raises ValueError for offsets that do not rise from 0 to
    the end."""

    data: Bytes
    offsets: Ints

    def __post_init__(self) -> None:
        check_offsets(self.offsets, len(self.data), may_be_empty=True)

    def __getitem__(self, number: int) -> str:
        begin, end = self.offsets[number], self.offsets[number + 1]
        return self.data[begin:end].tobytes().decode(errors="replace")


def check_offsets(offsets: Ints, end: int, *, may_be_empty: bool) -> None:
    """Raises ValueError unless the offsets rise from 0 to `end`."""
    least = 0 if may_be_empty else 1
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != end:
        raise ValueError(f"its offsets do not lead from 0 to {end:,}")
    if (np.diff(offsets) < least).any():
        raise ValueError("its offsets do not rise")
