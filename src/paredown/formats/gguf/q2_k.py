"""Q2_K: super-blocks of 256 columns in 16 groups, w = q (d s) - m t. They hold s and t in four
bits each per group, 64 bytes of codes, d and m (fp16)."""

import numpy as np

from paredown.formats.gguf.block_format import Bytes, Floats
from paredown.formats.gguf.blocks import block_format, finite_halves
from paredown.formats.gguf.unpack import half, pairs_of_bits


def dequantize(blocks_NB: Bytes) -> Floats:
    """Returns the values [N, 256]: two halves of 128 columns, each in four runs of 32 that share
    32 bytes."""
    d, m = half(blocks_NB, 80), half(blocks_NB, 82)
    scale = d * (blocks_NB[:, :16] & 15).astype(np.float32)
    minimum = m * (blocks_NB[:, :16] >> 4).astype(np.float32)
    codes_NGC = pairs_of_bits(blocks_NB[:, 16:80]).reshape(-1, 16, 16)
    values = codes_NGC.astype(np.float32) * scale[:, :, None] - minimum[:, :, None]
    return values.reshape(len(blocks_NB), -1)


FORMAT = block_format(
    "Q2_K", 10, "q2_k", dequantize, are_numbers=finite_halves(80, 82), file_type=10
)
