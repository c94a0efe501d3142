"""Q5_0: d (fp16), then 4 and 16 bytes for 32 columns, w = (q - 16) d. The fifth bits of all q are
in the 4 bytes, the others lie as in Q4_0."""

import numpy as np

from paredown.formats.gguf.block_format import BlockFormat, Bytes
from paredown.formats.gguf.codes import BLOCK_COLUMNS, decode_codes, encode_codes, spec_of
from paredown.formats.gguf.unpack import fifth_bits, nibbles
from paredown.formats.grid_weight import GridWeight

NAME = "Q5_0"
SPEC = spec_of("int5")


def decode(rows_OB: Bytes) -> GridWeight:
    return decode_codes(rows_OB, NAME, SPEC, _unpack)


def encode(weight: GridWeight) -> Bytes:
    return encode_codes(weight, pack)


def pack(codes_NC: Bytes) -> Bytes:
    """Returns the 4 and 16 bytes of each 32 codes."""
    fifths = np.packbits(codes_NC >> np.uint8(4), axis=1, bitorder="little")
    low = codes_NC & np.uint8(15)
    return np.concatenate([fifths, low[:, :16] | low[:, 16:] << np.uint8(4)], axis=1)


def _unpack(octets_NB: Bytes) -> Bytes:
    codes: Bytes = nibbles(octets_NB[:, 4:]) | fifth_bits(octets_NB[:, :4])
    return codes


FORMAT = BlockFormat(
    name=NAME,
    type_id=6,
    block_columns=BLOCK_COLUMNS,
    block_bytes=22,
    spec=SPEC,
    decode=decode,
    encode=encode,
    file_type=8,
)
