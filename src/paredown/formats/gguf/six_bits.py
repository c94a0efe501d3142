"""Sixteen six-bit numbers in 12 bytes: the scales and minima of the eight runs of Q4_K and Q5_K."""

import numpy as np

from paredown.formats.gguf.block_format import Bytes

NUM_BYTES = 12


def unpack(octets_NB: Bytes) -> tuple[Bytes, Bytes]:
    """Returns scales and minima, [N, 8] each. Runs 0 to 3 have theirs whole, in four bytes each.
    Runs 4 to 7 have four bits in the last four bytes and two in the top bits of the others."""
    low_s, low_t, high = (octets_NB[:, start : start + 4] for start in (0, 4, 8))
    s = np.concatenate([low_s & 63, (high & 15) | (low_s >> 6 << 4)], axis=1)
    t = np.concatenate([low_t & 63, (high >> 4) | (low_t >> 6 << 4)], axis=1)
    return s, t


def pack(s_N8: Bytes, t_N8: Bytes) -> Bytes:
    """Inverts `unpack`."""
    low_s, low_t = (one[:, :4] | one[:, 4:] >> 4 << 6 for one in (s_N8, t_N8))
    high = (s_N8[:, 4:] & 15) | t_N8[:, 4:] << 4
    return np.concatenate([low_s, low_t, high], axis=1)
