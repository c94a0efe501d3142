"""Q2_K: super-blocks of 256 columns under d and m (fp16), s and t of 4 bits with every 16 columns,
w = q (d s) - m t."""

import numpy as np

from paredown.formats.gguf.block_format import Bytes, Floats
from paredown.formats.gguf.blocks import block_format, finite_halves
from paredown.formats.gguf.unpack import bit_pairs, half


def dequantize(blocks_NB: Bytes) -> Floats:
    """Groups of 16, of which s and t share a byte."""
    factors = blocks_NB[:, :16]
    scale = half(blocks_NB, 80) * (factors & 15).astype(np.float32)
    minimum = half(blocks_NB, 82) * (factors >> 4).astype(np.float32)
    codes = bit_pairs(blocks_NB[:, 16:80]).reshape(-1, 16, 16).astype(np.float32)
    values: Floats = codes * scale[:, :, None] - minimum[:, :, None]
    return values


FORMAT = block_format(
    "Q2_K", 10, "q2_k", dequantize, are_numbers=finite_halves(80, 82), file_type=10
)
