"""Safetensors files: read as a memory map, written so that a file is either whole or not there."""

import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast, get_args

import numpy as np
import numpy.typing as npt

from paredown.errors import UnsupportedError
from paredown.files.model_file import open_model_file
from paredown.formats.tensor import NUMPY_DTYPES, StoredDType, StoredTensor
from paredown.models.files.safetensors_header import (
    PREFIX_BYTES,
    TensorPlace,
    build_header,
    header_length,
    parse_header,
)
from paredown.models.files.whole_file import unreadable, whole_file, write_array


class MappedTensors(Mapping[str, StoredTensor]):
    """The tensors of one file. Each array is a read-only view of the mapped file, made on access;
    it is a copy only where the file does not align it to its item size."""

    def __init__(
        self, path: Path, mapped: mmap.mmap, places: dict[str, TensorPlace], stat: os.stat_result
    ) -> None:
        """Keeps `stat`, the file's stat result from the moment it was mapped."""
        self.path = path
        self.stat = stat
        self.places = places
        self.file_bytes = len(mapped)
        self._mapped = mapped

    def with_places(self, places: dict[str, TensorPlace]) -> "MappedTensors":
        """Returns the same file with other names for its bytes."""
        return MappedTensors(self.path, self._mapped, places, self.stat)

    @property
    def raw(self) -> npt.NDArray[np.uint8]:
        """Returns the whole file."""
        return np.frombuffer(self._mapped, np.uint8)

    def release(self) -> None:
        """See MappedFile."""
        self._mapped.madvise(mmap.MADV_DONTNEED)

    def __getitem__(self, name: str) -> StoredTensor:
        place = self.places[name]
        if place.dtype not in get_args(StoredDType):
            raise UnsupportedError(
                f"{self.path}: tensor {name!r} has a dtype that no weight here can have",
                seen=place.dtype,
                remedy=f"Supported dtypes: {', '.join(get_args(StoredDType))}.",
            )
        dtype = cast(StoredDType, place.dtype)
        return StoredTensor(dtype=dtype, array=self._view(place, np.dtype(NUMPY_DTYPES[dtype])))

    def _view(self, place: TensorPlace, dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
        count = (place.end - place.start) // dtype.itemsize
        if count == 0:
            return np.empty(place.shape, dtype)
        array = np.frombuffer(self._mapped, dtype, count, place.start).reshape(place.shape)
        return array if array.flags.aligned else array.copy()

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def read_safetensors(path: Path, folder: Path | None = None) -> MappedTensors:
    """Maps a file of the model in `folder`, by default its own, and checks its whole header without
    touching the data. Raises CheckpointError for a file that is missing, unreadable or damaged."""
    try:
        with open_model_file(path, folder) as file:
            stat = os.fstat(file.fileno())
            file_bytes = stat.st_size
            head = file.read(PREFIX_BYTES)
            head += file.read(header_length(path, head, file_bytes))
            places = parse_header(path, head, file_bytes)
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise unreadable(path, error) from error
    return MappedTensors(path, mapped, places, stat)


def write_safetensors(
    path: Path, tensors: Mapping[str, StoredTensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes beside `path`, then renames: after any failure `path` is as it was and nothing else is
    left. Tensors are taken from the mapping one at a time, so only one is in memory. Raises
    OutputError when the system cannot write (disk full, no permission, ...)."""
    header, order = build_header(tensors, metadata or {})
    with whole_file(path) as file:
        file.write(header)
        for name in order:
            tensor = tensors[name]
            assert tensor.array.dtype == NUMPY_DTYPES[tensor.dtype], name
            write_array(file, tensor.array)
