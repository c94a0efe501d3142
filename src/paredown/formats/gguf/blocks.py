"""Block formats whose rows run as stored: the common part of the formats with kernels of their
own."""

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
    """Builds the table row of a format whose weights have that dtype. `are_numbers` tells whether
    all scales of blocks [..., bytes] are finite; `dequantize` returns the values of blocks [N,
    bytes]."""
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
    """Returns a function that tells whether the fp16 numbers at those bytes of blocks are
    finite."""

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
    """Returns the rows unchanged as a weight. Raises CheckpointError for scales that are not
    finite."""
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
