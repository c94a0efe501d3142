"""IQ4_NL and IQ4_XS: codes of four bits that name one of 16 values v. IQ4_NL has d (fp16) with 32
columns, w = v d; IQ4_XS super-blocks of 256 with d and s of 6 bits with every 32 columns,
w = v (d (s - 32))."""

import numpy as np

from paredown.formats.gguf.block_format import Bytes, Floats
from paredown.formats.gguf.blocks import block_format, finite_halves
from paredown.formats.gguf.unpack import half, nibbles

_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)


def _iq4_nl(blocks_NB: Bytes) -> Floats:
    values: Floats = _VALUES[nibbles(blocks_NB[:, 2:])] * half(blocks_NB, 0)
    return values


def _iq4_xs(blocks_NB: Bytes) -> Floats:
    """Of a scale two bits stand in bytes 2 and 3, four in the next four bytes."""
    high = np.ascontiguousarray(blocks_NB[:, 2:4]).view("<u2")
    high_bits = high >> np.arange(0, 16, 2, dtype=np.uint16) & np.uint16(3)
    low = blocks_NB[:, 4:8]
    low_bits = np.stack([low & 15, low >> 4], axis=2).reshape(-1, 8)
    s = low_bits | high_bits.astype(np.uint8) << np.uint8(4)
    scale = half(blocks_NB, 0) * (s.astype(np.float32) - np.float32(32))
    named = nibbles(blocks_NB[:, 8:].reshape(-1, 16)).reshape(-1, 8, 32)
    values: Floats = _VALUES[named] * scale[:, :, None]
    return values


IQ4_NL = block_format("IQ4_NL", 20, "iq4_nl", _iq4_nl, are_numbers=finite_halves(0), file_type=25)
IQ4_XS = block_format("IQ4_XS", 23, "iq4_xs", _iq4_xs, are_numbers=finite_halves(0), file_type=30)
