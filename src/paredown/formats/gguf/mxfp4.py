"""MXFP4: 32 columns in e2m1 under a power of two (e8m0): OCP's microscaling format."""

import numpy as np

from paredown.formats.gguf.block_format import Bytes, Floats
from paredown.formats.gguf.blocks import block_format
from paredown.formats.gguf.unpack import nibbles

# Twice the values of the 16 codes, under half the scale.
_VALUES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)
# Twelve times 2^(252 - 128) is the largest value.
_LARGEST_SCALE = 252


def dequantize(blocks_NB: Bytes) -> Floats:
    exponents = blocks_NB[:, :1].astype(np.uint32)
    normal = np.maximum(exponents, 1) - np.uint32(1) << np.uint32(23)
    # The two least scales are subnormal numbers.
    bits = np.where(exponents < 2, np.uint32(0x200000) << np.minimum(exponents, 1), normal)
    values: Floats = _VALUES[nibbles(blocks_NB[:, 1:])] * bits.astype(np.uint32).view(np.float32)
    return values


def _are_numbers(blocks: Bytes) -> bool:
    """Whether no scale is beyond what float32 holds of its values."""
    return bool((blocks[..., 0] <= _LARGEST_SCALE).all())


FORMAT = block_format("MXFP4", 39, "mxfp4", dequantize, are_numbers=_are_numbers, file_type=38)
