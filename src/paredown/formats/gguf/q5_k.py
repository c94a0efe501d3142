"""Q5_K: Q4_K with a fifth bit for every code, in 32 bytes before the others. Bit r of byte j
belongs to column j of run r."""

import numpy as np

from paredown.formats.gguf import six_bits
from paredown.formats.gguf.block_format import Bytes, Floats
from paredown.formats.gguf.blocks import block_format, finite_halves
from paredown.formats.gguf.unpack import half


def dequantize(blocks_NB: Bytes) -> Floats:
    """Returns the values [N, 256] of eight runs of 32; two runs share 32 bytes, the first in the
    low halves."""
    d, m = half(blocks_NB, 0), half(blocks_NB, 2)
    s, t = six_bits.unpack(blocks_NB[:, 4:16])
    pairs = blocks_NB[:, 48:].reshape(-1, 4, 32)
    low_NRC = np.stack([pairs & 15, pairs >> 4], axis=2).reshape(-1, 8, 32)
    runs = np.arange(8, dtype=np.uint8).reshape(1, 8, 1)
    codes_NRC = low_NRC | (blocks_NB[:, None, 16:48] >> runs & 1) << 4
    scale, minimum = d * s.astype(np.float32), m * t.astype(np.float32)
    values: Floats = codes_NRC.astype(np.float32) * scale[:, :, None] - minimum[:, :, None]
    return values.reshape(len(blocks_NB), -1)


FORMAT = block_format("Q5_K", 13, "q5_k", dequantize, are_numbers=finite_halves(0, 2), file_type=17)
