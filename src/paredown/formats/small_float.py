"""Floats of 8 bits: a sign, an exponent, a mantissa (OCP 8-bit formats, arXiv 2209.05433)."""

import numpy as np
import numpy.typing as npt

SIGN = 0x80
# The mantissa bits of float32.
_MANTISSA_BITS = 23
_BIAS = 127


def encode_small_float(
    values: npt.NDArray[np.float32], *, mantissa_bits: int, bias: int, largest: float
) -> npt.NDArray[np.uint8]:
    """Rounds finite float32 values to the nearest code, ties to even, clamped to the `largest`
    number."""
    magnitudes = np.minimum(np.abs(values), np.float32(largest))
    bits = magnitudes.view(np.uint32)
    dropped = _MANTISSA_BITS - mantissa_bits
    tie = (bits >> dropped) & 1
    normal = ((bits + (1 << (dropped - 1)) - 1 + tie) >> dropped) - (
        (_BIAS - bias) << mantissa_bits
    )
    # Below the smallest normal number codes count steps of equal size. 2^mantissa_bits steps are
    # that number, and give its code.
    smallest_normal = np.float32(2.0 ** (1 - bias))
    subnormal = np.rint(magnitudes * np.float32(2.0 ** (bias - 1 + mantissa_bits)))
    codes = np.where(magnitudes < smallest_normal, subnormal, normal).astype(np.uint8)
    return codes | np.where(np.signbit(values), np.uint8(SIGN), np.uint8(0))
