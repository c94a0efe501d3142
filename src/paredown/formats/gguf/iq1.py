"""IQ1_S and IQ1_M: every eight columns are one of 2048 vectors of -1, 0 and 1, moved up or down by
an eighth.

IQ1_S has super-blocks of 256 columns: d (fp16), 32 bytes of codes, and two bytes for every 32
columns. These two hold the three high bits of four codes, s in three bits, and the direction of
the move. As codes in eighths they fit int5: w = (8 v +- 1) (d (2 s + 1) / 8).

IQ1_M has 32 bytes of codes and four more bits for each code (three of the code, one for the
direction). Then s follows in three bits for every 16 columns, with a fourth of d above every four
of them. It runs dequantized.
"""

import numpy as np

from paredown.formats.gguf.block_format import BlockFormat, Bytes, Floats
from paredown.formats.gguf.iq_vectors import iq1
from paredown.formats.gguf.scaled_codes import Codes, scaled_codes_format
from paredown.formats.gguf.unpack import dequantized_format, half
from paredown.spec.weight import WeightSpec

_EIGHTHS = np.int8(8)


def unpack_s(blocks_NB: Bytes) -> tuple[Floats, Codes]:
    """Returns the scales of the eight runs, and the codes in eighths."""
    tops = np.ascontiguousarray(blocks_NB[:, 34:50]).view("<u2").astype(np.int32)
    scale = half(blocks_NB, 0) * (2 * (tops >> 12 & 7) + 1).astype(np.float32)
    high = (tops[:, :, None] >> np.arange(0, 12, 3) & 7).reshape(-1, 32)
    vectors = iq1()[blocks_NB[:, 2:34] | high << 8].reshape(-1, 8, 32)
    move = np.where(tops & 0x8000, np.int8(-1), np.int8(1))
    codes = vectors * _EIGHTHS + move[:, :, None]
    return scale / np.float32(8), codes.reshape(len(blocks_NB), -1)


def dequantize_m(blocks_NB: Bytes) -> Floats:
    """Returns the values [N, 256]."""
    words = np.ascontiguousarray(blocks_NB[:, 48:56]).view("<u2").astype(np.int32)
    bits = (words >> 12 << np.arange(0, 16, 4)).sum(axis=1, keepdims=True).astype("<u2")
    d = bits.view(np.float16).astype(np.float32)
    s = (words[:, :, None] >> np.arange(0, 12, 3) & 7).reshape(-1, 16)
    scale = d * (2 * s + 1).astype(np.float32) / np.float32(8)
    tops = np.stack([blocks_NB[:, 32:48] & 15, blocks_NB[:, 32:48] >> 4], axis=2).reshape(-1, 32)
    high = (tops & 7).astype(np.int32)
    move = np.where(tops & 8, np.int8(-1), np.int8(1))
    codes = iq1()[blocks_NB[:, :32] | high << 8] * _EIGHTHS + move[:, :, None]
    values: Floats = codes.reshape(-1, 16, 16).astype(np.float32) * scale[:, :, None]
    return values.reshape(len(blocks_NB), -1)


IQ1_S = scaled_codes_format(
    "IQ1_S", 19, 50, WeightSpec(dtype="int5", group_size=32), unpack_s, file_type=24
)
IQ1_M: BlockFormat = dequantized_format("IQ1_M", 29, (256, 56), dequantize_m, file_type=31)
