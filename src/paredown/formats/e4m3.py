"""e4m3 numbers (OCP 8-bit formats, arXiv 2209.05433): a sign, four exponent bits (bias 7) and
three mantissa bits. There is no infinity, 0x7f and 0xff are NaN, and the largest finite number is
448."""

import numpy as np
import numpy.typing as npt

from paredown.formats.small_float import SIGN, encode_small_float

MAX_FP8 = 448.0
NAN = 0x7F


def encode_fp8(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Rounds finite float32 values to the nearest e4m3 code, ties to even, clamped to the
    largest."""
    return encode_small_float(values, mantissa_bits=3, bias=7, largest=MAX_FP8)


def decode_fp8(codes: npt.NDArray[np.generic]) -> npt.NDArray[np.float32]:
    """Converts e4m3 codes to float32, exactly."""
    return _VALUES[codes.astype(np.uint8, copy=False)]


def has_nan(codes: npt.NDArray[np.uint8]) -> bool:
    return bool(((codes & NAN) == NAN).any())


def _values() -> npt.NDArray[np.float32]:
    codes = np.arange(SIGN)
    exponent, mantissa = codes >> 3, codes & 7
    subnormal = mantissa * 2.0**-9
    normal = (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    half = np.where(exponent == 0, subnormal, normal)
    half[NAN] = np.nan
    return np.concatenate([half, -half]).astype(np.float32)


_VALUES = _values()
