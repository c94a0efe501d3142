"""Q8_0: d (fp16) and 32 signed bytes for 32 columns, w = q d."""

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
from paredown.formats.grid_weight import GridWeight

NAME = "Q8_0"
SPEC = spec_of("int8")


def decode(rows_OB: Bytes) -> GridWeight:
    return decode_codes(rows_OB, NAME, SPEC, _shifted)


def encode(weight: GridWeight) -> Bytes:
    return encode_codes(weight, _shifted)


def quantize(values_OI: Floats) -> GridWeight:
    """Rounds [O, I] as llama.cpp's quantize_row_q8_0_ref does: d = max |x| / 127 and q = round(x /
    d), halves away from zero."""
    return quantize_codes(values_OI, NAME, SPEC, _codes)


def _shifted(codes_NC: Bytes) -> Bytes:
    """Converts signed to unsigned codes and back: the sum wraps around within a byte."""
    shifted: Bytes = codes_NC + np.uint8(128)
    return shifted


def _codes(values_NC: Floats) -> tuple[Floats, Bytes]:
    d = np.abs(values_NC).max(axis=1, keepdims=True) / np.float32(127)
    steps = values_NC * inverse(d)
    magnitudes = np.abs(steps)
    whole = np.floor(magnitudes)
    rounded = np.copysign(whole + (magnitudes - whole >= np.float32(0.5)), steps)
    return d, (rounded + np.float32(128)).astype(np.uint8)


FORMAT = BlockFormat(
    name=NAME,
    type_id=8,
    block_columns=BLOCK_COLUMNS,
    block_bytes=34,
    spec=SPEC,
    decode=decode,
    encode=encode,
    quantize=quantize,
    file_type=7,
)
