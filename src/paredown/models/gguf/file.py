"""GGUF files: read as a memory map, written whole or not at all."""

import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paredown.files.model_file import open_model_file
from paredown.models.files.whole_file import unreadable, whole_file, write_array
from paredown.models.gguf.header import (
    GGUFHeader,
    GGUFPlace,
    NewTensor,
    Value,
    build_header,
    damaged,
    padding,
    parse_header,
)


class MappedGGUF:
    """One mapped file; rows are read-only views of it."""

    def __init__(
        self, path: Path, mapped: mmap.mmap, header: GGUFHeader, stat: os.stat_result
    ) -> None:
        """Keeps `stat`, the file's stat result from the moment it was mapped."""
        self.path = path
        self.stat = stat
        self.file_bytes = len(mapped)
        self.metadata: Mapping[str, Value] = header.metadata
        self.places: Mapping[str, GGUFPlace] = header.places
        self._mapped = mapped

    @property
    def raw(self) -> npt.NDArray[np.uint8]:
        """Returns the whole file."""
        return np.frombuffer(self._mapped, np.uint8)

    def release(self) -> None:
        """See MappedFile."""
        self._mapped.madvise(mmap.MADV_DONTNEED)

    def rows(self, name: str) -> npt.NDArray[np.uint8]:
        """Returns a tensor's rows as stored, [rows, bytes]; a vector is one row."""
        place = self.places[name]
        num_bytes = place.end - place.start
        flat = np.frombuffer(self._mapped, np.uint8, num_bytes, place.start)
        return flat.reshape(-1, place.block.row_bytes(place.shape[-1]))


def read_gguf(path: Path) -> MappedGGUF:
    """Maps a file and checks its whole header without touching the data. Raises CheckpointError for
    a file that is missing, unreadable or damaged, and UnsupportedError for an unknown version or
    tensor type."""
    try:
        with open_model_file(path) as file:
            stat = os.fstat(file.fileno())
            if stat.st_size == 0:
                raise damaged(path, "it is empty", "0 bytes")
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise unreadable(path, error) from error
    return MappedGGUF(path, mapped, parse_header(path, memoryview(mapped)), stat)


def write_gguf_file(
    path: Path,
    metadata: Mapping[str, Value],
    tensors: Sequence[NewTensor],
    rows: Iterable[npt.NDArray[np.uint8]],
) -> None:
    """Writes beside `path`, then renames: after any failure `path` is as it was and nothing else is
    left. `rows` yields each tensor's bytes in the order of `tensors`, so only one is in memory.
    Raises OutputError when the system cannot write (disk full, no permission, ...)."""
    with whole_file(path) as file:
        file.write(build_header(metadata, tensors))
        for tensor, one in zip(tensors, rows, strict=True):
            assert one.nbytes == tensor.num_bytes, tensor.name
            write_array(file, one)
            file.write(bytes(padding(tensor.num_bytes)))
