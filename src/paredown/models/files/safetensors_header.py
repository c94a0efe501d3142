"""The header of a safetensors file: where each tensor lies. Read and checked before any data.

File: 8 bytes little-endian header length N, N bytes of JSON, then the data; the spans named in the
JSON must fill the data from its first byte to its last, in any order, without hole or overlap
(https://github.com/huggingface/safetensors, "Format").
"""

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paredown.errors import CheckpointError
from paredown.formats.tensor import StoredTensor
from paredown.shown import quoted, shown

PREFIX_BYTES = 8
# The limit of the reference implementation.
MAX_HEADER_BYTES = 100_000_000
# NumPy's limit since 1.x; no weight has more than a few.
MAX_DIMENSIONS = 32
# Every dtype of the format. StoredTensor supports those that a weight can have.
ITEM_BYTES = {
    "F64": 8,
    "I64": 8,
    "U64": 8,
    "F32": 4,
    "I32": 4,
    "U32": 4,
    "F16": 2,
    "BF16": 2,
    "I16": 2,
    "U16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
}
REMEDY = "Download the file again."


@dataclass(frozen=True, kw_only=True)
class TensorPlace:
    """Where a tensor lies: `start` and `end` are byte offsets from the beginning of the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def parse_header(path: Path, head: bytes, file_bytes: int) -> dict[str, TensorPlace]:
    """Returns the places by tensor name. `head` holds the file at least up to the end of the
    header, or the whole file if it is shorter. Raises CheckpointError."""
    length = header_length(path, head, file_bytes)
    raw = head[PREFIX_BYTES : PREFIX_BYTES + length]
    try:
        header = json.loads(raw.decode(), object_pairs_hook=_unique_names)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "its header is not valid JSON", error) from error
    if not isinstance(header, dict):
        raise _damaged(path, "its header is not a JSON object", type(header).__name__)
    header.pop("__metadata__", None)
    data_start = PREFIX_BYTES + length
    places = {name: _place(path, name, entry, data_start) for name, entry in header.items()}
    _check_spans(path, places, data_start, file_bytes)
    return places


def header_length(path: Path, head: bytes, file_bytes: int) -> int:
    """Returns N after checking it against the file size."""
    if file_bytes < PREFIX_BYTES:
        raise _damaged(path, "it is too short for a safetensors file", f"{file_bytes} bytes")
    length = int.from_bytes(head[:PREFIX_BYTES], "little")
    if length > file_bytes - PREFIX_BYTES or length > MAX_HEADER_BYTES:
        seen = f"header of {length} bytes in a file of {file_bytes}"
        raise _damaged(path, "its header is longer than the file or the format allows", seen)
    return length


def build_header(
    tensors: Mapping[str, StoredTensor], metadata: Mapping[str, str]
) -> tuple[bytes, list[str]]:
    """Returns the length prefix with the JSON, padded to 8 bytes, and the names in the order of
    their data. Wide dtypes come first, so that every tensor is aligned to its item size."""
    order = sorted(tensors, key=lambda name: (-ITEM_BYTES[tensors[name].dtype], name))
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name in order:
        tensor = tensors[name]
        end = offset + tensor.array.nbytes
        header[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    return len(raw).to_bytes(PREFIX_BYTES, "little") + raw, order


def _unique_names(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result: dict[str, object] = {}
    for name, value in pairs:
        if name in result:
            raise ValueError(f"duplicate name {quoted(name, 200)}")
        result[name] = value
    return result


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= sys.maxsize


def _place(path: Path, name: str, entry: object, data_start: int) -> TensorPlace:
    if not isinstance(entry, dict):
        raise _damaged(path, f"the header's entry of tensor {name!r} is not an object", entry)
    dtype, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise CheckpointError(
            f"{path}: tensor {name!r} has an unknown dtype",
            seen=dtype,
            remedy=f"Known dtypes: {', '.join(ITEM_BYTES)}.",
        )
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS or not all(map(_is_count, shape)):
        raise _damaged(path, f"tensor {name!r} has an impossible shape", shape)
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_count, offsets)):
        raise _damaged(path, f"tensor {name!r} has impossible data_offsets", offsets)
    if math.prod(size for size in shape if size) * ITEM_BYTES[dtype] > sys.maxsize:
        raise _damaged(path, f"tensor {name!r} has an impossible shape", shape)
    num_bytes = math.prod(shape) * ITEM_BYTES[dtype]
    if offsets[1] - offsets[0] != num_bytes:
        seen = f"data_offsets {offsets} for {dtype} {shape}, which takes {num_bytes} bytes"
        raise _damaged(path, f"tensor {name!r} has data_offsets that do not fit its shape", seen)
    return TensorPlace(
        dtype=dtype,
        shape=tuple(shape),
        start=data_start + offsets[0],
        end=data_start + offsets[1],
    )


def _check_spans(
    path: Path, places: dict[str, TensorPlace], data_start: int, file_bytes: int
) -> None:
    position = data_start
    for name, place in sorted(places.items(), key=lambda item: (item[1].start, item[1].end)):
        if place.end > file_bytes:
            seen = f"bytes {place.start} to {place.end} in a file of {file_bytes}"
            raise _damaged(path, f"the file ends before tensor {name!r} does", seen)
        if place.start != position:
            problem = "overlaps the one before it" if place.start < position else "follows a hole"
            seen = f"it starts at byte {place.start}, expected {position}"
            raise _damaged(path, f"tensor {name!r} {problem}", seen)
        position = place.end
    if position != file_bytes:
        seen = f"data end at byte {position} in a file of {file_bytes}"
        raise _damaged(path, "it holds bytes that belong to no tensor", seen)


def _damaged(path: Path, what: str, seen: object) -> CheckpointError:
    return CheckpointError(f"{path} is damaged: {what}", seen=shown(seen, 200), remedy=REMEDY)
