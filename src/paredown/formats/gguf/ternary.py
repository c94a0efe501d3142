"""TQ1_0 and TQ2_0: super-blocks of 256 columns of -1, 0 and 1 under one d (fp16). They run as int2
in groups of 256 columns, with the file's exact numbers.

TQ2_0 has 64 bytes, with two bits per column. TQ1_0 packs five columns in a byte, as a fraction in
base 3: 32 bytes, then 16, then four bytes of four columns.
"""

import numpy as np

from paredown.formats.gguf.block_format import Bytes, Floats
from paredown.formats.gguf.scaled_codes import Codes, scaled_codes_format
from paredown.formats.gguf.unpack import half, pairs_of_bits
from paredown.spec.weight import WeightSpec

SPEC = WeightSpec(dtype="int2", group_size=256)


def unpack_tq2(blocks_NB: Bytes) -> tuple[Floats, Codes]:
    codes = pairs_of_bits(blocks_NB[:, :64]).astype(np.int8) - np.int8(1)
    return half(blocks_NB, 64), codes


def unpack_tq1(blocks_NB: Bytes) -> tuple[Floats, Codes]:
    parts = [
        _digits(blocks_NB[:, start:end], num_digits)
        for start, end, num_digits in ((0, 32, 5), (32, 48, 5), (48, 52, 4))
    ]
    return half(blocks_NB, 52), np.concatenate(parts, axis=1) - np.int8(1)


def _digits(octets_NB: Bytes, num_digits: int) -> Codes:
    """Returns the codes digit by digit, each for all bytes. A byte times 3^k modulo 256 is a
    fraction whose first digit is digit k."""
    powers = (3 ** np.arange(num_digits)).astype(np.uint8).reshape(1, -1, 1)
    fractions = octets_NB[:, None, :] * powers
    digits = fractions.astype(np.uint16) * 3 >> 8
    return digits.astype(np.int8).reshape(len(octets_NB), -1)


TQ1_0 = scaled_codes_format("TQ1_0", 34, 54, SPEC, unpack_tq1, file_type=36)
TQ2_0 = scaled_codes_format("TQ2_0", 35, 66, SPEC, unpack_tq2, file_type=37)
