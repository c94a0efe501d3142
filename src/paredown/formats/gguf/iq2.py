"""IQ2_XXS, IQ2_XS and IQ2_S: every eight columns are one of 256, 512 or 1024 vectors of 8, 25 and
43, with a sign for each column; w = v d (2 s + 1) / 8.

The super-blocks have 256 columns under d (fp16). IQ2_XXS has four one-byte codes and four more
bytes for every 32 columns. These bytes hold s in four bits and four sets of signs in seven bits;
the eighth sign makes the number of minuses even. IQ2_XS has two bytes for every eight columns,
with nine bits of the code below the signs, and s in four bits for every 16 columns. IQ2_S stores
codes, signs and the two high bits of codes separately. Where s belongs to 32 columns the codes fit
int8; the other types run dequantized.
"""

import numpy as np

from paredown.formats.gguf.block_format import BlockFormat, Bytes, Floats
from paredown.formats.gguf.iq_vectors import iq2_s, iq2_xs, iq2_xxs
from paredown.formats.gguf.scaled_codes import Codes, scaled_codes_format
from paredown.formats.gguf.signs import even_signs, signs
from paredown.formats.gguf.unpack import dequantized_format, half
from paredown.spec.weight import WeightSpec


def unpack_xxs(blocks_NB: Bytes) -> tuple[Floats, Codes]:
    runs = np.ascontiguousarray(blocks_NB[:, 2:]).reshape(-1, 8, 8)
    tops = np.ascontiguousarray(runs[:, :, 4:]).view("<u4")[:, :, 0]
    scale = half(blocks_NB, 0) * (2 * (tops >> 28) + 1).astype(np.float32) / np.float32(8)
    codes: Codes = iq2_xxs()[runs[:, :, :4]] * even_signs(tops[:, :, None] >> np.arange(0, 28, 7))
    return scale, codes.reshape(len(blocks_NB), -1)


def dequantize_xs(blocks_NB: Bytes) -> Floats:
    """Returns the values [N, 256]."""
    words = np.ascontiguousarray(blocks_NB[:, 2:66]).view("<u2")
    codes = iq2_xs()[words & 511] * even_signs(words >> 9)
    return _scaled(codes, half(blocks_NB, 0), blocks_NB[:, 66:74])


def dequantize_s(blocks_NB: Bytes) -> Floats:
    """Returns the values [N, 256]."""
    places = np.arange(0, 8, 2, dtype=np.uint8)
    high = (blocks_NB[:, 66:74, None] >> places & 3).reshape(-1, 32).astype(np.uint16)
    codes = iq2_s()[blocks_NB[:, 2:34] | high << 8] * signs(blocks_NB[:, 34:66])
    return _scaled(codes, half(blocks_NB, 0), blocks_NB[:, 74:82])


def _scaled(codes_NVC: Codes, d: Floats, halves_N8: Bytes) -> Floats:
    s = np.stack([halves_N8 & 15, halves_N8 >> 4], axis=2).reshape(-1, 16)
    scale = d * (2 * s + 1).astype(np.float32) / np.float32(8)
    values = codes_NVC.reshape(-1, 16, 16).astype(np.float32) * scale[:, :, None]
    return values.reshape(len(halves_N8), -1)


IQ2_XXS = scaled_codes_format(
    "IQ2_XXS", 16, 66, WeightSpec(dtype="int8", group_size=32), unpack_xxs, file_type=19
)
IQ2_XS: BlockFormat = dequantized_format("IQ2_XS", 17, (256, 74), dequantize_xs, file_type=20)
IQ2_S: BlockFormat = dequantized_format("IQ2_S", 22, (256, 82), dequantize_s, file_type=28)
