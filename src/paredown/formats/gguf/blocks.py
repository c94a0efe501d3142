"""Rows of blocks that run as they are stored: what the formats with a kernel of their own have in
common."""

from collections.abc import Callable
from functools import partial

import numpy as np

from paredown.errors import CheckpointError
from paredown.formats.block_weight import BlockWeight
from paredown.formats.gguf.block_format import BlockFormat, Bytes, Floats
from paredown.spec.weight import WeightDType, WeightSpec

_EXPONENT = np.uint8(0x7C)


def block_format(
    name: str,
    type_id: int,
    dtype: WeightDType,
    dequantize: Callable[[Bytes], Floats],
    *,
    are_numbers: Callable[[Bytes], bool],
    file_type: int,
) -> BlockFormat:
    """The row of a format whose weights are of that dtype. Of blocks, [..., bytes], `are_numbers`
    says whether all scales are, and `dequantize` gives the values of [N, bytes]."""
    spec = WeightSpec(dtype=dtype)
    block = spec.traits.block
    assert block is not None, dtype
    return BlockFormat(
        name=name,
        type_id=type_id,
        block_columns=block.num_columns,
        block_bytes=block.num_bytes,
        spec=spec,
        decode=partial(
            _decode, name=name, spec=spec, are_numbers=are_numbers, dequantize=dequantize
        ),
        encode=_encode,
        file_type=file_type,
    )


def finite_halves(*starts: int) -> Callable[[Bytes], bool]:
    """Whether the fp16 numbers at those bytes of blocks are finite."""

    def are_finite(blocks: Bytes) -> bool:
        # The exponent of fp16 lies in the second byte.
        return all((blocks[..., start + 1] & _EXPONENT != _EXPONENT).all() for start in starts)

    return are_finite


def _decode(
    rows_OB: Bytes,
    name: str,
    spec: WeightSpec,
    are_numbers: Callable[[Bytes], bool],
    dequantize: Callable[[Bytes], Floats],
) -> BlockWeight:
    """The rows as they are. Raises CheckpointError for scales that are not finite numbers."""
    block = spec.traits.block
    assert block is not None
    if not are_numbers(rows_OB.reshape(len(rows_OB), -1, block.num_bytes)):
        raise CheckpointError(
            f"a {name} tensor holds scales that are not finite numbers",
            seen="NaN or infinity",
            remedy="Download the file again.",
        )
    return BlockWeight(spec=spec, rows_OB=rows_OB, to_floats=dequantize)


def _encode(weight: BlockWeight) -> Bytes:
    return weight.rows_OB
