"""Bytes of blocks, [N, bytes], taken apart."""

from collections.abc import Callable

import numpy as np

from paredown.formats.floating import check_finite
from paredown.formats.gguf.block_format import CHUNK_VALUES, Bytes, Floats
from paredown.formats.grid_weight import GridWeight
from paredown.spec.weight import WeightSpec

SCALE_BYTES = 2


def half(blocks_NB: Bytes, start: int) -> Floats:
    """The fp16 number at byte `start` of each block, [N, 1]."""
    halves = np.ascontiguousarray(blocks_NB[:, start : start + SCALE_BYTES]).view(np.float16)
    return halves.astype(np.float32)


def nibbles(octets_NB: Bytes) -> Bytes:
    """Low halves of all bytes, then the high ones."""
    return np.concatenate([octets_NB & np.uint8(15), octets_NB >> np.uint8(4)], axis=1)


def fifth_bits(octets_N4: Bytes) -> Bytes:
    """The bits of four bytes as the fifth bits of 32 codes."""
    return np.unpackbits(octets_N4, axis=1, bitorder="little") << np.uint8(4)


def nibble_pairs(octets_NB: Bytes) -> Bytes:
    """Of 32 bytes at a time the low halves, then the high ones: [N, runs, 32]."""
    pairs = octets_NB.reshape(len(octets_NB), -1, 32)
    return np.stack([pairs & 15, pairs >> 4], axis=2).reshape(len(octets_NB), -1, 32)


def bit_pairs(octets_NB: Bytes) -> Bytes:
    """Of 32 bytes at a time the lowest two bits, then the next ones: [N, runs, 32]."""
    shifts = np.arange(0, 8, 2, dtype=np.uint8).reshape(1, 1, 4, 1)
    pairs = octets_NB.reshape(len(octets_NB), -1, 1, 32) >> shifts & np.uint8(3)
    return pairs.reshape(len(octets_NB), -1, 32)


def run_bits(octets_N32: Bytes) -> Bytes:
    """A bit of each of eight runs of 32 columns, the lowest for the first: [N, 8, 32]."""
    shifts = np.arange(8, dtype=np.uint8).reshape(1, 8, 1)
    bits: Bytes = octets_N32[:, None, :] >> shifts & np.uint8(1)
    return bits


def dequantized(
    rows_OB: Bytes, block_bytes: int, dequantize: Callable[[Bytes], Floats]
) -> GridWeight:
    """The rows as float32, some of them at a time. Raises CheckpointError for values that are not
    finite numbers."""
    chunk_rows = max(1, CHUNK_VALUES // max(1, rows_OB.shape[1]))
    chunks = [rows_OB[start : start + chunk_rows] for start in range(0, len(rows_OB), chunk_rows)]
    with np.errstate(invalid="ignore", over="ignore"):
        parts = [dequantize(chunk.reshape(-1, block_bytes)) for chunk in chunks]
    values = np.concatenate([part.reshape(-1) for part in parts]).reshape(len(rows_OB), -1)
    check_finite(values)
    return GridWeight(spec=WeightSpec(dtype="fp32"), values_OI=values)
