"""The index of stored rows: where each ends in the file of all rows, and its checksum.

rows.bin     the rows' bytes, one after the other
rows.index   for each row: end in rows.bin u64 | CRC-32 of its bytes u64
"""

import zlib

import numpy as np
import numpy.typing as npt

ROWS, INDEX = "rows.bin", "rows.index"
ENTRY = np.dtype([("end", "<u8"), ("crc", "<u8")])
Entries = npt.NDArray[np.void]


def read_entries(data: bytes, num_row_bytes: int, most: int) -> Entries:
    """Returns the first entries that fit a file of rows of that size, at most so many. What a kill
    left half-written, and what follows it, is left out."""
    entries = np.frombuffer(data, ENTRY, min(len(data) // ENTRY.itemsize, most))
    ends = entries["end"]
    is_wrong = ends > num_row_bytes
    is_wrong[1:] |= ends[1:] < ends[:-1]
    return entries[: int(is_wrong.argmax())] if is_wrong.any() else entries


def stretch(entries: Entries, row: int) -> slice:
    """Returns the bytes of a row in the file of all rows."""
    start = int(entries["end"][row - 1]) if row else 0
    return slice(start, int(entries["end"][row]))


def is_sound(entries: Entries, row: int, data: bytes | memoryview) -> bool:
    """Returns whether these are the bytes that were written for the row."""
    return zlib.crc32(data) == int(entries["crc"][row])
