"""The header of a GGUF file: metadata, and where each tensor lies. It is checked before any data.

File: "GGUF", u32 version, u64 number of tensors, u64 number of metadata entries, the entries (key,
u32 type, value), the tensors (name, u32 number of dimensions, u64 each with the columns first, u32
type, u64 offset), padding up to the alignment, the data. Strings are u64 bytes and UTF-8; integers
are little-endian; offsets count from the data's beginning and are multiples of the alignment
(https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
"""

import math
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.gguf.block_format import BlockFormat
from paredown.formats.gguf.table import BLOCK_FORMATS, OTHER_TYPES
from paredown.shown import shown

# A number has the NumPy type that is written for it; arrays hold numbers or strings.
Value = str | bool | np.generic | npt.NDArray[np.generic] | list[str]

MAGIC = b"GGUF"
VERSION = 3
READ_VERSIONS = (2, 3)
ALIGNMENT_KEY = "general.alignment"
DEFAULT_ALIGNMENT = 32
# llama.cpp's limits.
MAX_DIMENSIONS = 4
MAX_NAME_BYTES = 63
# No file needs more than a page; a larger alignment would make padding of most of the file.
_MAX_ALIGNMENT = 1 << 20
# The least bytes of a string, a metadata entry and a tensor. A count that would not fit is damage.
_MIN_STRING_BYTES = 8
_MIN_ENTRY_BYTES = 8 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8

_NUMBERS: dict[int, str] = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 10: "<u8", 11: "<i8",
    12: "<f8",
}  # fmt: skip
_TYPE_IDS = {np.dtype(code): type_id for type_id, code in _NUMBERS.items()}
_BOOL, _STRING, _ARRAY = 7, 8, 9
_FORMATS_BY_ID = {block.type_id: block for block in BLOCK_FORMATS.values()}


@dataclass(frozen=True, kw_only=True)
class GGUFPlace:
    """Where a tensor lies. `shape` has the rows first, as everywhere here. `start` and `end` are
    byte offsets from the beginning of the file."""

    block: BlockFormat
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class GGUFHeader:
    metadata: Mapping[str, Value]
    places: Mapping[str, GGUFPlace]


@dataclass(frozen=True, kw_only=True)
class NewTensor:
    """A tensor to be written."""

    name: str
    block: BlockFormat
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape[:-1]) * self.block.row_bytes(self.shape[-1])


def parse_header(path: Path, raw: memoryview) -> GGUFHeader:
    """Parses `raw`, the whole file. Raises CheckpointError for a damaged one, and UnsupportedError
    for an unknown version or tensor type."""
    cursor = _Cursor(path, raw)
    if bytes(raw[:4]) != MAGIC:
        raise damaged(path, "it does not begin as a GGUF file does", bytes(raw[:4]))
    cursor.position = 4
    version = cursor.integer("I")
    if version not in READ_VERSIONS:
        raise UnsupportedError(
            f"{path} is of a version of GGUF that is not read here",
            seen=version,
            remedy="Versions 2 and 3, little-endian, are read; convert it anew with llama.cpp.",
        )
    num_tensors = cursor.count("tensors", _MIN_TENSOR_BYTES)
    num_entries = cursor.count("metadata entries", _MIN_ENTRY_BYTES)
    metadata: dict[str, Value] = {}
    for _ in range(num_entries):
        key = cursor.text()
        if key in metadata:
            raise damaged(path, "a metadata key occurs twice", key)
        metadata[key] = cursor.value(key)
    infos: dict[str, tuple[BlockFormat, tuple[int, ...], int]] = {}
    for _ in range(num_tensors):
        name = cursor.text()
        if name in infos:
            raise damaged(path, "a tensor's name occurs twice", name)
        infos[name] = cursor.tensor(name)
    alignment = _alignment(path, metadata)
    data_start = -(-cursor.position // alignment) * alignment
    places = {name: _place(path, name, info, data_start, alignment) for name, info in infos.items()}
    _check_spans(path, places, len(raw))
    return GGUFHeader(metadata=metadata, places=places)


def build_header(metadata: Mapping[str, Value], tensors: Sequence[NewTensor]) -> bytes:
    """Returns the file up to its data. Tensors follow in order, each padded to the alignment."""
    parts = [MAGIC, struct.pack("<IQQ", VERSION, len(tensors), len(metadata))]
    parts += [_text(key) + _entry(value) for key, value in metadata.items()]
    offset = 0
    for tensor in tensors:
        assert len(tensor.name.encode()) <= MAX_NAME_BYTES, tensor.name
        sizes = tensor.shape[::-1]
        parts.append(_text(tensor.name) + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes))
        parts.append(struct.pack("<IQ", tensor.block.type_id, offset))
        offset += tensor.num_bytes + padding(tensor.num_bytes)
    head = b"".join(parts)
    return head + bytes(padding(len(head)))


def padding(num_bytes: int) -> int:
    return -num_bytes % DEFAULT_ALIGNMENT


def damaged(path: Path, what: str, seen: object) -> CheckpointError:
    return CheckpointError(
        f"{path} is damaged: {what}", seen=shown(seen, 200), remedy="Download the file again."
    )


class _Cursor:
    """Reads from `position` on. It never reads or allocates beyond what the file holds."""

    def __init__(self, path: Path, raw: memoryview) -> None:
        self._path = path
        self._raw = raw
        self.position = 0

    def integer(self, code: Literal["I", "Q"]) -> int:
        value: int = struct.unpack_from("<" + code, self._take(4 if code == "I" else 8))[0]
        return value

    def count(self, of_what: str, item_bytes: int) -> int:
        """Reads a count of items that take at least `item_bytes` each."""
        count = self.integer("Q")
        if count * item_bytes > len(self._raw) - self.position:
            seen = f"{count} {of_what} in a file of {len(self._raw)} bytes"
            raise damaged(self._path, f"it has room for fewer {of_what} than it says", seen)
        return count

    def text(self) -> str:
        num_bytes = self.count("bytes of a string", 1)
        try:
            return str(self._take(num_bytes), "utf-8")
        except UnicodeDecodeError as error:
            raise damaged(self._path, "a string is not UTF-8", error) from error

    def value(self, key: str) -> Value:
        type_id = self.integer("I")
        if type_id != _ARRAY:
            return self._scalar(key, type_id)
        type_id = self.integer("I")
        if type_id == _STRING:
            num_strings = self.count("strings", _MIN_STRING_BYTES)
            return [self.text() for _ in range(num_strings)]
        if type_id == _ARRAY:
            raise UnsupportedError(
                f"{self._path}: metadata {key!r} is an array of arrays",
                seen=key,
                remedy="No model that is read here needs one; remove the key.",
            )
        dtype = np.dtype(bool if type_id == _BOOL else self._number(key, type_id))
        num_items = self.count("numbers", dtype.itemsize)
        return np.frombuffer(self._take(num_items * dtype.itemsize), dtype).copy()

    def tensor(self, name: str) -> tuple[BlockFormat, tuple[int, ...], int]:
        """Reads format, shape and offset."""
        num_dimensions = self.integer("I")
        if not 1 <= num_dimensions <= MAX_DIMENSIONS:
            what = f"tensor {name!r} has an impossible number of dimensions"
            raise damaged(self._path, what, num_dimensions)
        shape = tuple(self.integer("Q") for _ in range(num_dimensions))[::-1]
        type_id = self.integer("I")
        if type_id not in _FORMATS_BY_ID:
            raise UnsupportedError(
                f"{self._path}: tensor {name!r} is of a type that is not read here",
                seen=OTHER_TYPES.get(type_id, f"type {type_id}"),
                remedy=f"Use a file of {', '.join(BLOCK_FORMATS)}.",
            )
        block = _FORMATS_BY_ID[type_id]
        if 0 in shape or math.prod(shape) > sys.maxsize // 8:
            raise damaged(self._path, f"tensor {name!r} has an impossible shape", list(shape))
        if shape[-1] % block.block_columns:
            what = f"blocks of {block.block_columns} do not divide the columns of tensor {name!r}"
            raise damaged(self._path, what, list(shape))
        return block, shape, self.integer("Q")

    def _scalar(self, key: str, type_id: int) -> Value:
        if type_id == _STRING:
            return self.text()
        if type_id == _BOOL:
            return bool(self._take(1)[0])
        dtype = np.dtype(self._number(key, type_id))
        value: np.generic = np.frombuffer(self._take(dtype.itemsize), dtype)[0]
        return value

    def _number(self, key: str, type_id: int) -> str:
        if type_id not in _NUMBERS:
            raise damaged(self._path, f"metadata {key!r} has an unknown type", type_id)
        return _NUMBERS[type_id]

    def _take(self, num_bytes: int) -> memoryview:
        end = self.position + num_bytes
        if end > len(self._raw):
            seen = f"{len(self._raw)} bytes, {end} are needed"
            raise damaged(self._path, "it ends within its head", seen)
        taken = self._raw[self.position : end]
        self.position = end
        return taken


def _alignment(path: Path, metadata: Mapping[str, Value]) -> int:
    value = metadata.get(ALIGNMENT_KEY, np.uint32(DEFAULT_ALIGNMENT))
    alignment = int(value) if isinstance(value, np.unsignedinteger) else 0
    if not 1 <= alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
        raise damaged(path, f"{ALIGNMENT_KEY} is not valid", value)
    return alignment


def _place(
    path: Path,
    name: str,
    info: tuple[BlockFormat, tuple[int, ...], int],
    data_start: int,
    alignment: int,
) -> GGUFPlace:
    block, shape, offset = info
    if offset % alignment:
        seen = f"offset {offset}, alignment {alignment}"
        raise damaged(path, f"tensor {name!r} is not aligned", seen)
    start = data_start + offset
    num_bytes = math.prod(shape[:-1]) * block.row_bytes(shape[-1])
    return GGUFPlace(block=block, shape=shape, start=start, end=start + num_bytes)


def _check_spans(path: Path, places: Mapping[str, GGUFPlace], file_bytes: int) -> None:
    position = 0
    for name, place in sorted(places.items(), key=lambda item: item[1].start):
        if place.end > file_bytes:
            seen = f"bytes {place.start} to {place.end} in a file of {file_bytes}"
            raise damaged(path, f"the file ends before tensor {name!r} does", seen)
        if place.start < position:
            seen = f"it starts at byte {place.start}, the one before it ends at {position}"
            raise damaged(path, f"tensor {name!r} overlaps the one before it", seen)
        position = place.end


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _entry(value: Value) -> bytes:
    """Returns the bytes of type and value."""
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    if isinstance(value, bool):
        return struct.pack("<I?", _BOOL, value)
    if isinstance(value, list):
        head = struct.pack("<IIQ", _ARRAY, _STRING, len(value))
        return head + b"".join(map(_text, value))
    type_id = _BOOL if value.dtype == bool else _TYPE_IDS[value.dtype]
    if isinstance(value, np.ndarray):
        return struct.pack("<IIQ", _ARRAY, type_id, len(value)) + value.tobytes()
    return struct.pack("<I", type_id) + value.tobytes()
