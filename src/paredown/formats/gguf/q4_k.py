"""Q4_K: super-blocks of 256 columns under d and m (fp16), s and t of 6 bits with every 32 columns,
w = q (d s) - m t."""

import numpy as np

from paredown.formats.gguf import six_bits
from paredown.formats.gguf.block_format import Bytes, Floats
from paredown.formats.gguf.blocks import block_format, finite_halves
from paredown.formats.gguf.unpack import half


def dequantize(blocks_NB: Bytes) -> Floats:
    """Returns the values of eight groups of 32; two groups share 32 bytes, the first in the low
    halves."""
    d, m = half(blocks_NB, 0), half(blocks_NB, 2)
    s, t = six_bits.unpack(blocks_NB[:, 4:16])
    pairs = blocks_NB[:, 16:].reshape(-1, 4, 32)
    codes_NGC = np.stack([pairs & 15, pairs >> 4], axis=2).reshape(-1, 8, 32)
    scale, minimum = d * s.astype(np.float32), m * t.astype(np.float32)
    values: Floats = codes_NGC.astype(np.float32) * scale[:, :, None] - minimum[:, :, None]
    return values


FORMAT = block_format("Q4_K", 12, "q4_k", dequantize, are_numbers=finite_halves(0, 2), file_type=14)
