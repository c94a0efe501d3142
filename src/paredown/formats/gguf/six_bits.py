"""Scales and minima of six bits: what Q4_K and Q5_K have in common."""

import numpy as np

from paredown.formats.gguf.block_format import Bytes, Floats
from paredown.formats.gguf.unpack import half


def scales_and_minima(blocks_NB: Bytes) -> tuple[Floats, Floats]:
    """d s and m t of the eight groups of each block, [N, 8]: groups 0 to 3 have six bits whole,
    4 to 7 four bits here and two in the tops of those."""
    d, m = half(blocks_NB, 0), half(blocks_NB, 2)
    low_s, low_t, high = (blocks_NB[:, start : start + 4] for start in (4, 8, 12))
    s = np.concatenate([low_s & 63, (high & 15) | (low_s >> 6 << 4)], axis=1)
    t = np.concatenate([low_t & 63, (high >> 4) | (low_t >> 6 << 4)], axis=1)
    return d * s.astype(np.float32), m * t.astype(np.float32)
