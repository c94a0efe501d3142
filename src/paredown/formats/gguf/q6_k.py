"""Q6_K: super-blocks of 256 columns, w = (q - 32) (d s). They hold 128 and 64 bytes of codes, s in
16 signed bytes for 16 columns each, and d (fp16)."""

import numpy as np

from paredown.formats.gguf.block_format import Bytes, Floats
from paredown.formats.gguf.blocks import block_format, finite_halves
from paredown.formats.gguf.unpack import half


def dequantize(blocks_NB: Bytes) -> Floats:
    """Returns the values in groups of 16. Each of two halves of 128 columns has four runs of 32.
    The low bits of runs 0 and 2 share 32 bytes, those of runs 1 and 3 the next 32. The two high
    bits of all four runs share a byte."""
    low = blocks_NB[:, :128].reshape(-1, 2, 64)
    high = blocks_NB[:, 128:192].reshape(-1, 2, 1, 32)
    low_bits = np.concatenate([low & 15, low >> 4], axis=2).reshape(-1, 2, 4, 32)
    shifts = np.arange(0, 8, 2, dtype=np.uint8).reshape(1, 1, 4, 1)
    codes: Bytes = (low_bits | ((high >> shifts & 3) << 4)).reshape(-1, 16, 16)
    s: Floats = np.ascontiguousarray(blocks_NB[:, 192:208]).view(np.int8).astype(np.float32)
    scale = half(blocks_NB, 208) * s
    values: Floats = (codes.astype(np.float32) - np.float32(32)) * scale[:, :, None]
    return values


FORMAT = block_format("Q6_K", 14, "q6_k", dequantize, are_numbers=finite_halves(208), file_type=18)
