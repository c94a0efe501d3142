"""AWQ checkpoints as AutoAWQ writes them, version "gemm" (https://github.com/casper-hansen/AutoAWQ).

A module's tensors, 4 bits a code:
    qweight  I32 [I, O / 8]   unsigned codes, eight neighbouring output rows to a word
    qzeros   I32 [G, O / 8]   zero points, packed alike
    scales   F16 [G, O]

The nibbles of a word, low bits first, belong to rows 0, 2, 4, 6, 1, 3, 5, 7 of its eight.
"""

from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.bits import pack_bits, unpack_bits
from paredown.formats.stored.half_scales import half_scales
from paredown.formats.stored.stored_form import StoredForm
from paredown.formats.stored.tensor_checks import (
    Tensors,
    bad_tensor,
    present,
    take_scales,
    take_words,
)
from paredown.formats.tensor import StoredTensor
from paredown.formats.weight import Weight
from paredown.spec.weight import WeightSpec

CODES = "qweight"
ZEROS = "qzeros"
SCALES = "scales"
BITS = 4
_PER_WORD = 8
# Row of each nibble, and nibble of each row.
_ROWS = np.array([0, 2, 4, 6, 1, 3, 5, 7])
_NIBBLES = np.argsort(_ROWS)


@dataclass(frozen=True, kw_only=True)
class AWQForm:
    """How one module is stored (formats/stored/stored_form.py)."""

    spec: WeightSpec

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def suffixes(self) -> tuple[str, ...]:
        return CODES, ZEROS, SCALES

    @property
    def notes(self) -> tuple[str, ...]:
        return ()

    def tensor_shapes(self, shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        num_rows, num_columns = shape
        size = self.spec.group_size or num_columns
        if num_rows % _PER_WORD or num_columns % size:
            raise CheckpointError(
                "AWQ packs eight output rows to a word, and its groups divide the columns",
                seen=f"{num_rows} rows, {num_columns} columns in groups of {size}",
                remedy="Use the config.json that belongs to these weights.",
            )
        num_groups = num_columns // size
        return {
            CODES: (num_columns, num_rows // _PER_WORD),
            ZEROS: (num_groups, num_rows // _PER_WORD),
            SCALES: (num_groups, num_rows),
        }

    def settle(self, tensors: Tensors, shape: tuple[int, int]) -> StoredForm:
        return self

    def decode(self, tensors: Tensors) -> Weight:
        words = present(tensors, CODES).array
        if words.ndim != 2 or words.size == 0:
            raise bad_tensor(CODES, "has not the shape of a weight", list(words.shape))
        shapes = self.tensor_shapes((words.shape[1] * _PER_WORD, words.shape[0]))
        codes_IO = _unpack(take_words(tensors, CODES, shapes[CODES]))
        zeros_GO = _unpack(take_words(tensors, ZEROS, shapes[ZEROS]))
        scales_GO, scale_dtype = take_scales(tensors, SCALES, shapes[SCALES])
        return Weight(
            spec=self.spec,
            values_OI=np.ascontiguousarray(codes_IO.T),
            scales_OG=np.ascontiguousarray(scales_GO.T),
            zero_points_OG=np.ascontiguousarray(zeros_GO.T),
            scale_dtype=scale_dtype,
        )


def check_spec(spec: WeightSpec, shape: tuple[int, int]) -> None:
    """Raises UnsupportedError for a weight that has no form here. A symmetric one has: its zero
    points are 8."""
    plain = WeightSpec(dtype=spec.dtype, group_size=spec.group_size, symmetric=spec.symmetric)
    if spec.dtype != "int4" or spec != plain:
        raise UnsupportedError(
            "AWQ holds integers of 4 bits, for inputs as they are",
            seen=spec.name,
            remedy="Convert to compressed-tensors or to a float format.",
        )
    if shape[0] % _PER_WORD:
        raise UnsupportedError(
            "AWQ packs eight output rows to a word",
            seen=f"{shape[0]} rows",
            remedy="Convert to compressed-tensors.",
        )


def encode_awq(weight: Weight) -> dict[str, StoredTensor]:
    """A weight's tensors, by suffix. Raises UnsupportedError for scales other than fp16 numbers."""
    check_spec(weight.spec, weight.shape)
    scales_OG = half_scales(weight)
    zeros_OG = weight.zero_points_OG
    if zeros_OG is None:
        zeros_OG = np.full(scales_OG.shape, 1 << (BITS - 1), np.uint8)
    codes_OI = cast("npt.NDArray[np.uint8]", weight.values_OI)
    return {
        CODES: _pack(np.ascontiguousarray(codes_OI.T)),
        ZEROS: _pack(np.ascontiguousarray(zeros_OG.T)),
        SCALES: StoredTensor(dtype="F16", array=np.ascontiguousarray(scales_OG.T)),
    }


def _pack(codes_RO: npt.NDArray[np.uint8]) -> StoredTensor:
    num_rows, size = codes_RO.shape
    ordered = codes_RO.reshape(num_rows, -1, _PER_WORD)[:, :, _ROWS].reshape(num_rows, size)
    return StoredTensor(dtype="I32", array=pack_bits(ordered, BITS))


def _unpack(words_RW: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
    num_rows, num_words = words_RW.shape
    ordered = unpack_bits(words_RW, BITS, num_words * _PER_WORD)
    codes = ordered.reshape(num_rows, num_words, _PER_WORD)[:, :, _NIBBLES]
    return codes.reshape(num_rows, num_words * _PER_WORD)
