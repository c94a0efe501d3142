"""MXFP4 and NVFP4: four-bit codes that name an e2m1 number, doubled here to be an integer.

MXFP4 has a byte for the scale's exponent (e8m0) and 16 bytes for 32 columns, with codes as in
Q4_0. NVFP4 has four e4m3 scales for 16 columns each, and four runs of 8 bytes. The values of NVFP4
are exact in bf16, and are held so.
"""

import numpy as np

from paredown.formats.gguf.block_format import BlockFormat, Bytes, Floats
from paredown.formats.gguf.blocks import block_format
from paredown.formats.gguf.unpack import dequantized_format, nibbles

NUMBERS = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
_TABLE = np.array(NUMBERS, np.float32)
# 12 times 2^(252 - 128) is the largest value.
_LARGEST_POWER = 252


def dequantize_mx(blocks_NB: Bytes) -> Floats:
    """Returns the values [N, 32]."""
    return _TABLE[nibbles(blocks_NB[:, 1:])] * halved_e8m0(blocks_NB[:, :1])


def halved_e8m0(exponents: Bytes) -> Floats:
    """Returns 2^(x - 128); the two smallest are subnormal."""
    bits = exponents.astype(np.uint32)
    found = np.where(bits < 2, np.uint32(1 << 21) << bits, (bits - np.uint32(1)) << np.uint32(23))
    return found.astype(np.uint32).view(np.float32)


def dequantize_nv(blocks_NB: Bytes) -> Floats:
    """Returns the values [N, 64]."""
    codes_NGC = nibbles(blocks_NB[:, 4:].reshape(-1, 8)).reshape(-1, 4, 16)
    values = _TABLE[codes_NGC] * halved_e4m3(blocks_NB[:, :4])[:, :, None]
    return values.reshape(len(blocks_NB), -1)


def halved_e4m3(octets: Bytes) -> Floats:
    """Decodes without a sign; the NaN code counts as 0, as in llama.cpp."""
    exponent, mantissa = (octets >> 3 & 15).astype(np.int32), (octets & 7).astype(np.float32)
    value = np.where(
        exponent == 0,
        np.ldexp(mantissa, -9),
        np.ldexp(1 + mantissa / np.float32(8), exponent - 7),
    )
    return np.where(octets == 0x7F, np.float32(0), value * np.float32(0.5)).astype(np.float32)


def powers_fit(blocks: Bytes) -> bool:
    """Returns whether all values of MXFP4 fit in float32."""
    return bool((blocks[..., 0] <= _LARGEST_POWER).all())


MXFP4 = block_format("MXFP4", 39, "mxfp4", dequantize_mx, are_numbers=powers_fit, file_type=38)
NVFP4: BlockFormat = dequantized_format(
    "NVFP4", 40, (64, 36), dequantize_nv, file_type=39, is_exact=True
)
