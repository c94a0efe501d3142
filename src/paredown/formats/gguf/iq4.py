"""IQ4_NL and IQ4_XS: four-bit codes that name one of 16 numbers, which lie closer together near
zero.

IQ4_NL has d (fp16) and 16 bytes for 32 columns, w = n[q] d, codes as in Q4_0. IQ4_XS has
super-blocks of 256 columns: d, the high and the low bits of a six-bit scale for every 32 columns,
and 128 bytes of codes; w = n[q] (d (s - 32)).
"""

import numpy as np

from paredown.formats.gguf.block_format import Bytes, Floats
from paredown.formats.gguf.blocks import block_format, finite_halves
from paredown.formats.gguf.unpack import half, nibbles

NUMBERS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_TABLE = np.array(NUMBERS, np.float32)


def dequantize_nl(blocks_NB: Bytes) -> Floats:
    """Returns the values [N, 32]."""
    return _TABLE[nibbles(blocks_NB[:, 2:])] * half(blocks_NB, 0)


def dequantize_xs(blocks_NB: Bytes) -> Floats:
    """Returns the values [N, 256]."""
    codes_NRC = nibbles(blocks_NB[:, 8:].reshape(-1, 16)).reshape(-1, 8, 32)
    scale = half(blocks_NB, 0) * scales_xs(blocks_NB[:, 2:8])
    return (_TABLE[codes_NRC] * scale[:, :, None]).reshape(len(blocks_NB), -1)


def scales_xs(octets_NB: Bytes) -> Floats:
    """Returns s - 32 of the eight runs, [N, 8]. Two bytes hold the two high bits of each, then
    four bytes the four low bits."""
    runs = np.arange(0, 8, 2, dtype=np.uint8)
    high = (octets_NB[:, :2, None] >> runs & 3).reshape(-1, 8)
    low = np.stack([octets_NB[:, 2:] & 15, octets_NB[:, 2:] >> 4], axis=2).reshape(-1, 8)
    s: Floats = (low | high << 4).astype(np.float32) - np.float32(32)
    return s


IQ4_NL = block_format(
    "IQ4_NL", 20, "iq4_nl", dequantize_nl, are_numbers=finite_halves(0), file_type=25
)
IQ4_XS = block_format(
    "IQ4_XS", 23, "iq4_xs", dequantize_xs, are_numbers=finite_halves(0), file_type=30
)
