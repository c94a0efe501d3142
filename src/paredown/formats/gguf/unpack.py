"""Functions that unpack the bytes of blocks, [N, bytes]."""

from collections.abc import Callable
from functools import partial

import numpy as np

from paredown.formats.floating import cast
from paredown.formats.gguf.block_format import CHUNK_VALUES, BlockFormat, Bytes, Floats
from paredown.formats.grid_weight import GridWeight
from paredown.spec.weight import WeightSpec

SCALE_BYTES = 2
# Weights without a kernel are held in two bytes each.
DEQUANTIZED = WeightSpec(dtype="bf16")


def half(blocks_NB: Bytes, start: int) -> Floats:
    """Returns the fp16 number at byte `start` of each block, [N, 1]."""
    halves = np.ascontiguousarray(blocks_NB[:, start : start + SCALE_BYTES]).view(np.float16)
    return halves.astype(np.float32)


def nibbles(octets_NB: Bytes) -> Bytes:
    """Returns the low halves of all bytes, then the high ones."""
    return np.concatenate([octets_NB & np.uint8(15), octets_NB >> np.uint8(4)], axis=1)


def fifth_bits(octets_N4: Bytes) -> Bytes:
    """Returns the bits of four bytes as the fifth bits of 32 codes."""
    return np.unpackbits(octets_N4, axis=1, bitorder="little") << np.uint8(4)


def pairs_of_bits(octets_NB: Bytes) -> Bytes:
    """Returns two-bit codes: of every 32 bytes the lowest pairs of bits, then the next."""
    shifts = np.arange(0, 8, 2, dtype=np.uint8).reshape(1, 1, 4, 1)
    codes: Bytes = octets_NB.reshape(len(octets_NB), -1, 1, 32) >> shifts & np.uint8(3)
    return codes.reshape(len(octets_NB), -1)


def dequantized(
    rows_OB: Bytes, block_bytes: int, dequantize: Callable[[Bytes], Floats]
) -> GridWeight:
    """Returns the rows as bf16, converted some rows at a time. Raises CheckpointError for values
    that are not finite."""
    chunk_rows = max(1, CHUNK_VALUES // max(1, rows_OB.shape[1]))
    parts = []
    for start in range(0, len(rows_OB), chunk_rows):
        chunk = np.ascontiguousarray(rows_OB[start : start + chunk_rows])
        with np.errstate(invalid="ignore", over="ignore"):
            values = dequantize(chunk.reshape(-1, block_bytes)).reshape(len(chunk), -1)
        parts.append(cast(values, "bf16").tensor.array)
    return GridWeight(spec=DEQUANTIZED, values_OI=np.concatenate(parts))


def dequantized_format(
    name: str,
    type_id: int,
    block: tuple[int, int],
    dequantize: Callable[[Bytes], Floats],
    file_type: int,
    *,
    is_exact: bool = False,
) -> BlockFormat:
    """Builds the table row of a type without a kernel. `block` has its columns and bytes;
    `is_exact` says whether bf16 holds all its values."""
    num_columns, num_bytes = block
    return BlockFormat(
        name=name,
        type_id=type_id,
        block_columns=num_columns,
        block_bytes=num_bytes,
        spec=DEQUANTIZED,
        is_exact=is_exact,
        decode=partial(dequantized, block_bytes=num_bytes, dequantize=dequantize),
        file_type=file_type,
    )
