"""The files of an index: written piece by piece, and mapped when they are read."""

import contextlib
import hashlib
import io
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from paredown.files.model_file import open_model_file
from paredown.files.new_file import make_raw_file
from paredown.kernels import _core

Bytes = npt.NDArray[np.uint8]
_CHUNK_BYTES = 2 << 20
# A piece written in one call at a multiple of its own size goes into huge pages of the page cache
# where the file system has them (kernels/packed_file.py).
_PIECE_BYTES = 16 << 20


@dataclass(frozen=True, kw_only=True)
class StoredBytes:
    """The length of a file and a digest of its content, which reveals damage and does not resist an
    adversary. Raises ValueError for what cannot be one."""

    num_bytes: int
    digest: str

    def __post_init__(self) -> None:
        if type(self.num_bytes) is not int or self.num_bytes < 0 or type(self.digest) is not str:
            raise ValueError(f"no length or no digest of a file: {self.num_bytes}, {self.digest}")


class BytesWriter:
    """Writes a new file with bounded memory, in large pieces, and hashes it on the way."""

    def __init__(self, path: Path, piece_bytes: int = _CHUNK_BYTES) -> None:
        assert piece_bytes % _CHUNK_BYTES == 0
        self._file: io.FileIO = make_raw_file(path)
        self._piece: Bytes = np.empty(piece_bytes, np.uint8)
        self._filled = 0
        self._num_bytes = 0
        self._hashes: list[int] = []

    def __enter__(self) -> "BytesWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def write(self, data: npt.NDArray[np.generic]) -> None:
        """Raises OSError."""
        left: Bytes = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        while len(left):
            count = min(len(left), len(self._piece) - self._filled)
            self._piece[self._filled : self._filled + count] = left[:count]
            self._filled += count
            left = left[count:]
            if self._filled == len(self._piece):
                self._flush()

    def finish(self) -> StoredBytes:
        """Writes what is left, and waits until the disk has it all. Raises OSError."""
        self._flush()
        os.fsync(self._file.fileno())
        return StoredBytes(num_bytes=self._num_bytes, digest=_joint(self._num_bytes, self._hashes))

    def _flush(self) -> None:
        piece = self._piece[: self._filled]
        self._hashes += _hashes(piece, 1)
        left = piece.data
        while left:
            # A disk that is nearly full takes a part.
            left = left[self._file.write(left) or 0 :]
        self._num_bytes += self._filled
        self._filled = 0


def large_writer(path: Path) -> BytesWriter:
    """Returns the writer of a file of many pieces."""
    return BytesWriter(path, _PIECE_BYTES)


def map_bytes(path: Path, folder: Path, wanted: StoredBytes) -> Bytes:
    """Maps a file of the index in `folder`, without reading it. Raises OSError, and ValueError for
    a file of another length."""
    with open_model_file(path, folder) as file:
        num_bytes = os.fstat(file.fileno()).st_size
        if num_bytes != wanted.num_bytes:
            raise ValueError(f"{num_bytes:,} bytes, not {wanted.num_bytes:,}")
        if not num_bytes:
            return np.empty(0, np.uint8)
        mapped = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # the kernel may lack huge pages
            mapped.madvise(mmap.MADV_HUGEPAGE)
    data: Bytes = np.frombuffer(mapped, np.uint8)
    return data


def check_bytes(data: Bytes, wanted: StoredBytes, num_threads: int) -> None:
    """Reads all bytes. Raises ValueError unless they are those that were written."""
    if _joint(len(data), _hashes(data, num_threads)) != wanted.digest:
        raise ValueError("its bytes are not those that were written")


def _hashes(data: Bytes, num_threads: int) -> list[int]:
    return _core.hash_chunks(data, _CHUNK_BYTES, num_threads) if len(data) else []


def _joint(num_bytes: int, hashes: list[int]) -> str:
    parts = num_bytes.to_bytes(8, "little") + np.array(hashes, "<u8").tobytes()
    return hashlib.sha256(parts).hexdigest()
