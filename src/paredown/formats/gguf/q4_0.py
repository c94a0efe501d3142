"""Q4_0: d (fp16) and 16 bytes for 32 columns, w = (q - 8) d; byte j holds q[j] and, above it,
q[j + 16]."""

import numpy as np

from paredown.formats.gguf.block_format import BlockFormat, Bytes, Floats
from paredown.formats.gguf.codes import (
    BLOCK_COLUMNS,
    decode_codes,
    encode_codes,
    inverse,
    quantize_codes,
    spec_of,
)
from paredown.formats.gguf.unpack import nibbles
from paredown.formats.grid_weight import GridWeight

NAME = "Q4_0"
SPEC = spec_of("int4")


def decode(rows_OB: Bytes) -> GridWeight:
    return decode_codes(rows_OB, NAME, SPEC, nibbles)


def encode(weight: GridWeight) -> Bytes:
    return encode_codes(weight, _pack)


def quantize(values_OI: Floats) -> GridWeight:
    """Rounds [O, I] as llama.cpp's quantize_row_q4_0_ref does: d is the value of largest magnitude
    over -8, q = min(15, int(x / d + 8.5))."""
    return quantize_codes(values_OI, NAME, SPEC, _codes)


def _pack(codes_NC: Bytes) -> Bytes:
    middle = BLOCK_COLUMNS // 2
    packed: Bytes = codes_NC[:, :middle] | codes_NC[:, middle:] << np.uint8(4)
    return packed


def _codes(values_NC: Floats) -> tuple[Floats, Bytes]:
    largest = np.abs(values_NC).argmax(axis=1, keepdims=True)
    d = np.take_along_axis(values_NC, largest, axis=1) / np.float32(-8)
    steps = values_NC * inverse(d) + np.float32(8.5)
    return d, np.minimum(steps.astype(np.uint8), 15)


FORMAT = BlockFormat(
    name=NAME,
    type_id=2,
    block_columns=BLOCK_COLUMNS,
    block_bytes=18,
    spec=SPEC,
    decode=decode,
    encode=encode,
    quantize=quantize,
    file_type=2,
)
