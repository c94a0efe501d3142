"""Q4_K: super-blocks of 256 columns under d and m (fp16), s and t of 6 bits with every 32 columns,
w = q (d s) - m t. It runs dequantized, with the roundings of llama.cpp."""

from functools import partial

import numpy as np

from paredown.formats.gguf.block_format import BlockFormat, Bytes, Floats
from paredown.formats.gguf.unpack import dequantized, half
from paredown.spec.weight import WeightSpec

BLOCK_BYTES = 144


def dequantize(blocks_NB: Bytes) -> Floats:
    """Eight groups of 32; two of them share 32 bytes, one in the low halves."""
    d, m = half(blocks_NB, 0), half(blocks_NB, 2)
    low_s, low_t, high = (blocks_NB[:, start : start + 4] for start in (4, 8, 12))
    # Six bits each: groups 0 to 3 whole, 4 to 7 in four bits here and two in the tops of those.
    s = np.concatenate([low_s & 63, (high & 15) | (low_s >> 6 << 4)], axis=1)
    t = np.concatenate([low_t & 63, (high >> 4) | (low_t >> 6 << 4)], axis=1)
    pairs = blocks_NB[:, 16:].reshape(-1, 4, 32)
    codes_NGC = np.stack([pairs & 15, pairs >> 4], axis=2).reshape(-1, 8, 32)
    scale, minimum = d * s.astype(np.float32), m * t.astype(np.float32)
    return codes_NGC.astype(np.float32) * scale[:, :, None] - minimum[:, :, None]


FORMAT = BlockFormat(
    name="Q4_K",
    type_id=12,
    block_columns=256,
    block_bytes=BLOCK_BYTES,
    spec=WeightSpec(dtype="fp32"),
    is_exact=False,
    decode=partial(dequantized, block_bytes=BLOCK_BYTES, dequantize=dequantize),
)
