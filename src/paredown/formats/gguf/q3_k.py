"""Q3_K: super-blocks of 256 columns with third bits in 32 bytes and two in 64, s of 6 bits for 16
columns each and d (fp16), w = (q - 4) (d (s - 32))."""

import numpy as np

from paredown.formats.gguf.block_format import Bytes, Floats
from paredown.formats.gguf.blocks import block_format, finite_halves
from paredown.formats.gguf.unpack import bit_pairs, half, run_bits


def dequantize(blocks_NB: Bytes) -> Floats:
    """Groups of 16; of a scale four bits stand in one half of a byte, two in one of the last four
    bytes."""
    codes = bit_pairs(blocks_NB[:, 32:96]) | run_bits(blocks_NB[:, :32]) << np.uint8(2)
    low, high = blocks_NB[:, 96:104], blocks_NB[:, None, 104:108]
    shifts = np.arange(0, 8, 2, dtype=np.uint8).reshape(1, 4, 1)
    low_bits = np.concatenate([low & 15, low >> 4], axis=1)
    s = low_bits | (high >> shifts & 3).reshape(-1, 16) << np.uint8(4)
    scale = half(blocks_NB, 108) * (s.astype(np.float32) - np.float32(32))
    values: Floats = (codes.reshape(-1, 16, 16).astype(np.float32) - np.float32(4)) * (
        scale[:, :, None]
    )
    return values


FORMAT = block_format("Q3_K", 11, "q3_k", dequantize, are_numbers=finite_halves(108), file_type=12)
