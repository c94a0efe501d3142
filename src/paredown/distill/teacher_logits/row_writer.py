"""RowWriter: writes the distributions of row after row, and goes on where a killed run stopped."""

import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from paredown.distill.teacher_logits.row_index import (
    ENTRY,
    INDEX,
    ROWS,
    Entries,
    is_sound,
    read_entries,
    stretch,
)
from paredown.errors import OutputError
from paredown.files.new_file import PRIVATE, make_raw_file
from paredown.files.own_file import extend_own_file
from paredown.files.refused_file import RefusedFileError


class RowWriter:
    """Use `open_row_writer`. `num_rows` are there."""

    def __init__(self, rows: io.FileIO, index: io.FileIO, most: int) -> None:
        """Cuts off what a kill left half-written."""
        self._rows, self._index = rows, index
        entries = read_entries(_contents(index, most * ENTRY.itemsize), _size(rows), most)
        self.num_rows = _num_sound(rows, entries)
        self._end = stretch(entries, self.num_rows - 1).stop if self.num_rows else 0
        for file, size in ((rows, self._end), (index, self.num_rows * ENTRY.itemsize)):
            file.truncate(size)
            file.seek(size)

    def add(self, data: bytes) -> None:
        """Writes the next row; its place in the index comes last. Raises OSError."""
        _write(self._rows, data)
        self._end += len(data)
        _write(self._index, np.array([(self._end, zlib.crc32(data))], ENTRY).tobytes())
        self.num_rows += 1


@contextmanager
def open_row_writer(folder: Path, most: int) -> Iterator[RowWriter]:
    """Yields the writer of at most so many rows. Raises OutputError for a full disk and for files
    of other users; whole rows stay and count."""
    files: list[io.FileIO] = []
    try:
        for name in (ROWS, INDEX):
            files.append(_opened(folder / name))
        yield RowWriter(files[0], files[1], most)
        for file in files:
            os.fsync(file.fileno())
    except OSError as error:
        raise unwritable(folder, error) from error
    finally:
        for file in files:
            file.close()


def unwritable(folder: Path, error: OSError) -> OutputError:
    remedy = "Free some space; the same command goes on after the rows that are there."
    if isinstance(error, RefusedFileError):
        remedy = error.remedy
    return OutputError(
        f"the teacher's distributions could not be written to {folder}",
        seen=error.strerror or error,
        remedy=remedy,
    )


def _opened(path: Path) -> io.FileIO:
    try:
        return make_raw_file(path, PRIVATE)
    except FileExistsError:
        return extend_own_file(path)


def _size(file: io.FileIO) -> int:
    return os.fstat(file.fileno()).st_size


def _contents(file: io.FileIO, most_bytes: int) -> bytes:
    return os.pread(file.fileno(), min(_size(file), most_bytes), 0)


def _num_sound(rows: io.FileIO, entries: Entries) -> int:
    """Returns how many rows are whole; after a power cut the last ones may not be."""
    number = len(entries)
    while number:
        place = stretch(entries, number - 1)
        data = os.pread(rows.fileno(), place.stop - place.start, place.start)
        if is_sound(entries, number - 1, data):
            break
        number -= 1
    return number


def _write(file: io.FileIO, data: bytes) -> None:
    left = memoryview(data)
    while left:
        # A disk that is nearly full takes a part.
        left = left[file.write(left) or 0 :]
