"""A file of packed weights: mapped, written whole or not at all, and verified when opened.

_PREFIX            magic, byte order, version, sizes and hash of the header
header             JSON: key, layout, and for each blob its fields, offset and length;
                   one XXH64 per chunk of the payload
payload            from a multiple of a chunk on: the blobs, each at a multiple of a page
"""

import contextlib
import hashlib
import io
import json
import mmap
import os
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paredown.files.own_file import open_own_file
from paredown.kernels import _core

Bytes = npt.NDArray[np.uint8]

MAGIC = b"PAREDOWN"
FORMAT_VERSION = 1
# In the other byte order this reads as another number.
BYTE_ORDER_MARK = 0x0A0B0C0D
PAGE_BYTES = 4096
CHUNK_BYTES = 2 << 20
# A piece written in one call at a multiple of its own size goes into huge pages of the page cache
# where the file system has them. A mapping of the file then consists of huge pages too
# (docs/log.md).
PIECE_BYTES = 16 << 20
# Magic, byte order, version, bytes of the JSON, number of chunks, hash of header and sizes.
_PREFIX = struct.Struct("=8sIIQQ32s")


class PackedFileError(Exception):
    """The file is damaged, or it is not the wanted one."""


class AbandonedError(Exception):
    """The writer was told to stop."""


@dataclass(frozen=True, kw_only=True)
class Blob:
    """One piece of the payload. `fields` describe it and must be JSON."""

    fields: Mapping[str, Any]
    data: Bytes


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """The place of a blob in the payload."""

    fields: Mapping[str, Any]
    offset: int
    num_bytes: int


@dataclass(frozen=True, kw_only=True)
class _Header:
    key: str
    layout: int
    payload_offset: int
    payload_bytes: int
    entries: list[_Entry]
    hashes: npt.NDArray[np.uint64]


def hash_bytes(data: Bytes, num_threads: int) -> str:
    """Returns a digest of `data` that reveals damage and change; it does not resist an
    adversary."""
    hashes = np.array(_core.hash_chunks(data, CHUNK_BYTES, num_threads), dtype="<u8")
    return hashlib.sha256(len(data).to_bytes(8, "little") + hashes.tobytes()).hexdigest()


def write_packed_file(
    file: io.FileIO, key: str, blobs: Sequence[Blob], *, num_threads: int, go_on: Callable[[], bool]
) -> int:
    """Writes a packed file into an empty file and returns its length. `go_on` is called before
    each piece. Raises OSError, and AbandonedError when told to stop; the caller then removes the
    file."""
    table, payload_bytes = _table(key, blobs)
    num_chunks = -(-payload_bytes // CHUNK_BYTES)
    payload_offset = _round_up(_PREFIX.size + len(table) + 8 * num_chunks, CHUNK_BYTES)
    assert payload_offset <= PIECE_BYTES, "the header must fit in the first piece"
    hashes: list[int] = []
    start = payload_offset
    for piece in _pieces(payload_offset, blobs):
        if not go_on():
            raise AbandonedError(str(file.name))
        hashes += _core.hash_chunks(piece[start:], CHUNK_BYTES, num_threads)
        _write_all(file.fileno(), piece)
        start = 0
    # The prefix is written last: without it the file is not valid.
    file.seek(0)
    header = _encode(table, np.array(hashes, dtype=np.uint64))
    _write_all(file.fileno(), np.frombuffer(header, np.uint8))
    os.fsync(file.fileno())
    return payload_offset + payload_bytes


class PackedFile:
    """A mapped file with a valid header. The core's threads verify its payload in the background;
    blobs may be used once `verify` has returned."""

    def __init__(self, path: Path, key: str, num_threads: int) -> None:
        """Raises PackedFileError for a damaged file. Raises OSError if the file is missing, not
        accessible, or could have been written by another user (files/own_file.py)."""
        with open_own_file(path) as file:
            if os.fstat(file.fileno()).st_size < _PREFIX.size:
                raise PackedFileError("it is shorter than a header")
            mapped = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # the kernel may lack huge pages
                mapped.madvise(mmap.MADV_HUGEPAGE)
        data: Bytes = np.frombuffer(mapped, np.uint8)
        header = _decode(data)
        _check(header, key, len(data))
        self.path = path
        self.file_bytes = len(data)
        self._header = header
        self._payload = data[header.payload_offset :]
        self._found: list[int] = []
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._hash, args=(num_threads,))
        self._thread.start()

    def verify(self) -> None:
        """Waits for the verification. Raises PackedFileError unless the payload is what was
        written, or the error that kept it from being read (no memory, no thread)."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        found = np.array(self._found, dtype=np.uint64)
        if not np.array_equal(found, self._header.hashes):
            raise PackedFileError("its bytes are not those that were written")

    def blobs(self) -> Iterator[Blob]:
        """Yields views of the mapping, which lives as long as one of them."""
        for entry in self._header.entries:
            data = self._payload[entry.offset : entry.offset + entry.num_bytes]
            yield Blob(fields=entry.fields, data=data)

    def _hash(self, num_threads: int) -> None:
        try:
            self._found = _core.hash_chunks(self._payload, CHUNK_BYTES, num_threads)
        except Exception as error:  # `verify` raises it: the file may be intact
            self._failure = error


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _table(key: str, blobs: Sequence[Blob]) -> tuple[bytes, int]:
    """Returns the JSON of the header, with offsets counted from the payload, and the payload's
    length."""
    entries: list[dict[str, object]] = []
    offset = 0
    for blob in blobs:
        entries.append({"fields": blob.fields, "offset": offset, "num_bytes": blob.data.nbytes})
        offset += _round_up(blob.data.nbytes, PAGE_BYTES)
    table = {"key": key, "layout": _core.LAYOUT_VERSION, "payload_bytes": offset}
    return json.dumps(table | {"entries": entries}).encode(), offset


def _pieces(payload_offset: int, blobs: Sequence[Blob]) -> Iterator[Bytes]:
    """Yields the file in pieces, with zeros for the header; all pieces share one buffer."""
    piece: Bytes = np.zeros(PIECE_BYTES, np.uint8)
    filled = payload_offset
    padding: Bytes = np.zeros(PAGE_BYTES, np.uint8)
    for blob in blobs:
        for part in (blob.data, padding[: -blob.data.nbytes % PAGE_BYTES]):
            done = 0
            while done < len(part):
                count = min(len(part) - done, PIECE_BYTES - filled)
                piece[filled : filled + count] = part[done : done + count]
                filled, done = filled + count, done + count
                if filled == PIECE_BYTES:
                    yield piece
                    filled = 0
    if filled:
        yield piece[:filled]


def _write_all(descriptor: int, data: Bytes) -> None:
    left = data.data
    while left:
        left = left[os.write(descriptor, left) :]


def _encode(table: bytes, hashes: npt.NDArray[np.uint64]) -> bytes:
    rest = table + hashes.tobytes()
    digest = _header_digest(len(table), len(hashes), rest)
    return (
        _PREFIX.pack(MAGIC, BYTE_ORDER_MARK, FORMAT_VERSION, len(table), len(hashes), digest) + rest
    )


def _decode(data: Bytes) -> _Header:
    magic, mark, version, table_bytes, num_chunks, digest = _PREFIX.unpack(
        data[: _PREFIX.size].tobytes()
    )
    if magic != MAGIC:
        raise PackedFileError("it does not begin as a packed file does")
    if mark != BYTE_ORDER_MARK:
        raise PackedFileError("it was written in another byte order")
    if version != FORMAT_VERSION:
        raise PackedFileError(f"its format is number {version}")
    end = _PREFIX.size + table_bytes + 8 * num_chunks
    rest = data[_PREFIX.size : end].tobytes() if end <= min(len(data), PIECE_BYTES) else b""
    if _header_digest(table_bytes, num_chunks, rest) != digest:
        raise PackedFileError("its header is damaged")
    # An intact header may still contain what none of our writers writes.
    try:
        table = json.loads(rest[:table_bytes])
        return _Header(
            key=str(table["key"]),
            layout=_count(table["layout"]),
            payload_offset=_round_up(end, CHUNK_BYTES),
            payload_bytes=_count(table["payload_bytes"]),
            entries=[_entry(one, table["payload_bytes"]) for one in table["entries"]],
            hashes=np.frombuffer(rest[table_bytes:], np.uint64),
        )
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise PackedFileError(f"its header is odd: {type(error).__name__}") from error


def _entry(found: object, payload_bytes: int) -> _Entry:
    """Reads an entry of the header. Raises ValueError, LookupError or TypeError unless it is a
    blob within the payload."""
    if not isinstance(found, dict) or not isinstance(found["fields"], dict):
        raise TypeError("a blob is no object")
    offset, num_bytes = _count(found["offset"]), _count(found["num_bytes"])
    if offset % PAGE_BYTES or offset > payload_bytes or num_bytes > payload_bytes - offset:
        raise ValueError("a blob beyond the payload")
    return _Entry(fields=found["fields"], offset=offset, num_bytes=num_bytes)


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("no count")
    return value


def _header_digest(table_bytes: int, num_chunks: int, rest: bytes) -> bytes:
    return hashlib.sha256(struct.pack("=QQ", table_bytes, num_chunks) + rest).digest()


def _check(header: _Header, key: str, file_bytes: int) -> None:
    expected = header.payload_offset + header.payload_bytes
    if header.layout != _core.LAYOUT_VERSION:
        raise PackedFileError(f"its layout is number {header.layout}")
    if header.key != key:
        raise PackedFileError("it belongs to another checkpoint")
    if file_bytes != expected:
        raise PackedFileError(f"it has {file_bytes} bytes, not {expected}")
