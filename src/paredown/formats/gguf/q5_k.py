"""Q5_K: super-blocks of 256 columns under d and m (fp16), s and t of 6 bits with every 32 columns,
w = q (d s) - m t; the fifth bits of a super-block's eight groups share 32 bytes."""

import numpy as np

from paredown.formats.gguf.block_format import Bytes, Floats
from paredown.formats.gguf.blocks import block_format, finite_halves
from paredown.formats.gguf.six_bits import scales_and_minima
from paredown.formats.gguf.unpack import nibble_pairs, run_bits


def dequantize(blocks_NB: Bytes) -> Floats:
    """Eight groups of 32."""
    scale, minimum = scales_and_minima(blocks_NB)
    codes = nibble_pairs(blocks_NB[:, 48:]) | run_bits(blocks_NB[:, 16:48]) << np.uint8(4)
    values: Floats = codes.astype(np.float32) * scale[:, :, None] - minimum[:, :, None]
    return values


FORMAT = block_format("Q5_K", 13, "q5_k", dequantize, are_numbers=finite_halves(0, 2), file_type=16)
