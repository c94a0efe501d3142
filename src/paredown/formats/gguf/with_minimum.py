"""Q4_1 and Q5_1: 32 columns under d and m (fp16), w = q d + m, with codes as in Q4_0 and Q5_0."""

import numpy as np

from paredown.formats.gguf.block_format import Bytes, Floats
from paredown.formats.gguf.blocks import block_format, finite_halves
from paredown.formats.gguf.unpack import fifth_bits, half, nibbles


def dequantize_q4_1(blocks_NB: Bytes) -> Floats:
    d, m = half(blocks_NB, 0), half(blocks_NB, 2)
    return nibbles(blocks_NB[:, 4:]).astype(np.float32) * d + m


def dequantize_q5_1(blocks_NB: Bytes) -> Floats:
    d, m = half(blocks_NB, 0), half(blocks_NB, 2)
    codes = nibbles(blocks_NB[:, 8:]) | fifth_bits(blocks_NB[:, 4:8])
    return codes.astype(np.float32) * d + m


Q4_1 = block_format(
    "Q4_1", 3, "q4_1", dequantize_q4_1, are_numbers=finite_halves(0, 2), file_type=3
)
Q5_1 = block_format(
    "Q5_1", 7, "q5_1", dequantize_q5_1, are_numbers=finite_halves(0, 2), file_type=9
)
