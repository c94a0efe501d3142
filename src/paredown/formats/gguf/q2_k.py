"""Q2_K: super-blocks of 256 columns in 16 groups: s and t of four bits in a byte for each, 64 bytes
of codes, d and m (fp16); w = q (d s) - m t. It runs dequantized."""

import numpy as np

from paredown.formats.gguf.block_format import BlockFormat, Bytes, Floats
from paredown.formats.gguf.unpack import dequantized_format, half, pairs_of_bits

BLOCK_BYTES = 84


def dequantize(blocks_NB: Bytes) -> Floats:
    """[N, 256]: two halves of 128 columns, each in four runs of 32 that share 32 bytes."""
    d, m = half(blocks_NB, 80), half(blocks_NB, 82)
    scale = d * (blocks_NB[:, :16] & 15).astype(np.float32)
    minimum = m * (blocks_NB[:, :16] >> 4).astype(np.float32)
    codes_NGC = pairs_of_bits(blocks_NB[:, 16:80]).reshape(-1, 16, 16)
    values = codes_NGC.astype(np.float32) * scale[:, :, None] - minimum[:, :, None]
    return values.reshape(len(blocks_NB), -1)


FORMAT: BlockFormat = dequantized_format("Q2_K", 10, (256, BLOCK_BYTES), dequantize, file_type=10)
