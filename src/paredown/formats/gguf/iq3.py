"""IQ3_XXS and IQ3_S: every four columns are one of 256 or 512 vectors, with a sign for each
column.

The super-blocks have 256 columns under d (fp16). IQ3_XXS has 64 one-byte codes, and four bytes for
every 32 columns as in IQ2_XXS; w = v d (2 s + 1) / 4, and codes fit int8. IQ3_S has codes, their
ninth bits, signs, and s in four bits for every 32 columns; w = v d (2 s + 1), and codes fit int5.
"""

import numpy as np

from paredown.formats.gguf.block_format import Bytes, Floats
from paredown.formats.gguf.iq_vectors import iq3_s, iq3_xxs
from paredown.formats.gguf.scaled_codes import Codes, scaled_codes_format
from paredown.formats.gguf.signs import even_signs, signs
from paredown.formats.gguf.unpack import half
from paredown.spec.weight import WeightSpec


def unpack_xxs(blocks_NB: Bytes) -> tuple[Floats, Codes]:
    tops = np.ascontiguousarray(blocks_NB[:, 66:98]).view("<u4")
    scale = half(blocks_NB, 0) * (2 * (tops >> 28) + 1).astype(np.float32) / np.float32(4)
    vectors = iq3_xxs()[blocks_NB[:, 2:66]].reshape(-1, 8, 4, 8)
    codes = vectors * even_signs(tops[:, :, None] >> np.arange(0, 28, 7))
    return scale, codes.reshape(len(blocks_NB), -1)


def unpack_s(blocks_NB: Bytes) -> tuple[Floats, Codes]:
    ninth = np.unpackbits(blocks_NB[:, 66:74], axis=1, bitorder="little").astype(np.uint16)
    vectors = iq3_s()[blocks_NB[:, 2:66] | ninth << 8].reshape(-1, 32, 8)
    codes = vectors * signs(blocks_NB[:, 74:106])
    halves = blocks_NB[:, 106:110]
    s = np.stack([halves & 15, halves >> 4], axis=2).reshape(-1, 8)
    scale = half(blocks_NB, 0) * (2 * s + 1).astype(np.float32)
    return scale, codes.reshape(len(blocks_NB), -1)


IQ3_XXS = scaled_codes_format(
    "IQ3_XXS", 18, 98, WeightSpec(dtype="int8", group_size=32), unpack_xxs, file_type=23
)
IQ3_S = scaled_codes_format(
    "IQ3_S", 21, 110, WeightSpec(dtype="int5", group_size=32), unpack_s, file_type=26
)
