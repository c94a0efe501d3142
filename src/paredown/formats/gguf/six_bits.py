"""Sixteen numbers of six bits in 12 bytes: scales and minima of the eight runs of Q4_K and Q5_K."""

import numpy as np

from paredown.formats.gguf.block_format import Bytes

NUM_BYTES = 12


def unpack(octets_NB: Bytes) -> tuple[Bytes, Bytes]:
    """Scales and minima, [N, 8] each. Those of runs 0 to 3 stand whole in four bytes each; those of
    4 to 7 have four bits in the last four bytes and two in the tops of the others."""
    low_s, low_t, high = (octets_NB[:, start : start + 4] for start in (0, 4, 8))
    s = np.concatenate([low_s & 63, (high & 15) | (low_s >> 6 << 4)], axis=1)
    t = np.concatenate([low_t & 63, (high >> 4) | (low_t >> 6 << 4)], axis=1)
    return s, t


def pack(s_N8: Bytes, t_N8: Bytes) -> Bytes:
    """The way back of `unpack`."""
    low_s, low_t = (one[:, :4] | one[:, 4:] >> 4 << 6 for one in (s_N8, t_N8))
    high = (s_N8[:, 4:] & 15) | t_N8[:, 4:] << 4
    return np.concatenate([low_s, low_t, high], axis=1)
