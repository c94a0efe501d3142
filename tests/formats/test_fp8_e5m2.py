"""formats/fp8_e5m2.py against torch.float8_e5m2 and against the definition."""

import math

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.formats.fp8_e5m2 import MAX_E5M2, decode_e5m2, encode_e5m2
from references.activation import nearest_number


def value_of(code: int) -> float:
    """By the definition, bit by bit."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = code >> 2 & 0x1F, code & 0x03
    if exponent == 0x1F:
        return sign * math.inf if mantissa == 0 else math.nan
    if exponent == 0:
        return sign * mantissa / 4 * 2.0**-14
    return sign * (1 + mantissa / 4) * 2.0 ** (exponent - 15)


def test_all_codes_are_those_of_the_definition_and_of_torch() -> None:
    codes = np.arange(256, dtype=np.uint8)
    values = decode_e5m2(codes)
    np.testing.assert_array_equal(values, [value_of(int(code)) for code in codes])
    of_torch = torch.from_numpy(codes).view(torch.float8_e5m2).float().numpy()
    np.testing.assert_array_equal(values, of_torch)
    finite = np.isfinite(values)
    np.testing.assert_array_equal(encode_e5m2(values[finite]), codes[finite])
    assert values[finite].max() == MAX_E5M2


def test_every_rounding_is_that_of_torch() -> None:
    """All fp16 numbers and their float32 neighbours on either side: every tie and every almost."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    halves = halves[np.abs(halves) < 61440]
    values = np.concatenate(
        [halves, np.nextafter(halves, np.float32(1e9)), np.nextafter(halves, np.float32(-1e9))]
    )
    values = values[np.abs(values) < 61440]
    expected = torch.from_numpy(values).to(torch.float8_e5m2).view(torch.uint8).numpy()
    np.testing.assert_array_equal(encode_e5m2(values), expected)


@settings(max_examples=200, deadline=None)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_the_nearest_number_ties_to_even_clamped(x: float) -> None:
    value = decode_e5m2(encode_e5m2(np.array([x], np.float32)))[0]
    assert value == nearest_number(x, "fp8_e5m2")
    assert np.signbit(value) == np.signbit(np.float32(x))
