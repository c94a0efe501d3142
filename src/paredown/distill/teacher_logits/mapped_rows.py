"""MappedRows: the stored distributions of all rows, read from a memory map."""

import mmap
import os
from pathlib import Path

import numpy as np

from paredown.distill.teacher_logits.keep import Bytes
from paredown.distill.teacher_logits.row_index import (
    ENTRY,
    INDEX,
    ROWS,
    Entries,
    is_sound,
    read_entries,
    stretch,
)
from paredown.errors import CheckpointError, ConfigError
from paredown.files.own_file import open_own_file, read_own_file
from paredown.models.files.whole_file import unreadable
from paredown.units import MEBI

# So much of the file stays in this process's memory before it is given back to the system.
HELD_BYTES = 64 * MEBI


class MappedRows:
    """The rows of a folder. Raises CheckpointError for files that cannot be read, and ConfigError
    where rows are missing."""

    def __init__(self, folder: Path, num_rows: int) -> None:
        self._path = folder / ROWS
        self._held = 0
        self._mapped: mmap.mmap | None = None
        try:
            index = read_own_file(folder / INDEX, num_rows * ENTRY.itemsize)
            with open_own_file(self._path) as file:
                self.num_bytes = os.fstat(file.fileno()).st_size
                if self.num_bytes:
                    self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError as error:
            raise _missing(folder, 0, num_rows) from error
        except OSError as error:
            raise unreadable(folder, error) from error
        self._entries: Entries = read_entries(index, self.num_bytes, num_rows)
        if len(self._entries) != num_rows:
            raise _missing(folder, len(self._entries), num_rows)

    def row(self, number: int) -> Bytes:
        """Returns the bytes of a row. Raises CheckpointError for bytes that were not written so."""
        place = stretch(self._entries, number)
        data = np.empty(0, np.uint8)
        if self._mapped is not None and place.stop > place.start:
            self._release(place.stop - place.start)
            data = np.frombuffer(self._mapped, np.uint8, place.stop - place.start, place.start)
        if not is_sound(self._entries, number, data.data):
            raise self.damaged(number, "another checksum")
        return data

    def damaged(self, number: int, seen: object) -> CheckpointError:
        """Returns the error of a row that cannot be read."""
        return CheckpointError(
            f"{self._path}: the distributions of row {number} are damaged",
            seen=seen,
            remedy="Remove the folder; the same command writes it again.",
        )

    def _release(self, num_bytes: int) -> None:
        """Gives pages that were read back to the system once they are many. Arrays that are still
        in use read them again."""
        self._held += num_bytes
        if self._held > HELD_BYTES:
            self._held = num_bytes
            assert self._mapped is not None
            self._mapped.madvise(mmap.MADV_DONTNEED)


def _missing(folder: Path, found: int, num_rows: int) -> ConfigError:
    return ConfigError(
        f"the teacher's distributions in {folder} are not whole",
        seen=f"{found:,} of {num_rows:,} rows",
        remedy="Start the command that writes them again; it goes on where it stopped.",
    )
