"""Q3_K: super-blocks of 256 columns in 16 groups, w = (q - 4) (d (s - 32)). They hold 32 bytes of
high bits, 64 of low bits, s in six bits each in 12 bytes, d (fp16)."""

import numpy as np

from paredown.formats.gguf.block_format import Bytes, Floats
from paredown.formats.gguf.blocks import block_format, finite_halves
from paredown.formats.gguf.unpack import half, pairs_of_bits


def dequantize(blocks_NB: Bytes) -> Floats:
    """Returns the values [N, 256]. Low bits lie as in Q2_K; bit r of byte j of the high bits
    belongs to column j of run r, of eight runs of 32."""
    runs = np.arange(8, dtype=np.uint8).reshape(1, 8, 1)
    high_NRC = blocks_NB[:, None, :32] >> runs & 1
    codes = pairs_of_bits(blocks_NB[:, 32:96]).reshape(-1, 8, 32) | high_NRC << 2
    signed_NGC = (codes.astype(np.float32) - np.float32(4)).reshape(-1, 16, 16)
    scale = half(blocks_NB, 108) * scales(blocks_NB[:, 96:108])
    return (signed_NGC * scale[:, :, None]).reshape(len(blocks_NB), -1)


def scales(octets_NB: Bytes) -> Floats:
    """Returns the scales of the 16 groups. Eight bytes hold the four low bits of each, the low
    halves first; four bytes hold the two high bits of each, in four rounds."""
    low = np.concatenate([octets_NB[:, :8] & 15, octets_NB[:, :8] >> 4], axis=1)
    rounds = np.arange(0, 8, 2, dtype=np.uint8).reshape(1, 4, 1)
    high = (octets_NB[:, None, 8:] >> rounds & 3).reshape(-1, 16)
    s: Floats = (low | high << 4).astype(np.float32) - np.float32(32)
    return s


FORMAT = block_format("Q3_K", 11, "q3_k", dequantize, are_numbers=finite_halves(108), file_type=12)
