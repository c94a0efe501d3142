"""e5m2 numbers (OCP 8-bit formats, arXiv 2209.05433): a sign, five bits of exponent (bias 15), two
of mantissa. A code is the upper byte of the same number in fp16: 0x7c is infinity, above it is NaN,
the largest finite number is 57344, below 2^-14 numbers are multiples of 2^-16.

Weights are kept as e4m3 (formats/fp8.py); e5m2 has the range for what varies more, gradients and
activations, and one bit less of precision.
"""

import numpy as np
import numpy.typing as npt

MAX_E5M2 = 57344.0
_SIGN = 0x80
_SMALLEST_NORMAL = np.float32(2.0**-14)
_SUBNORMALS_PER_ONE = np.float32(2.0**16)
# float32 has 21 more bits of mantissa, and a bias larger by 112.
_DROPPED_BITS = 21
_BIAS_STEPS = 112 << 2


def encode_e5m2(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Finite float32 values to the nearest e5m2 code, ties to even, clamped to the largest."""
    magnitudes = np.minimum(np.abs(values), np.float32(MAX_E5M2))
    bits = magnitudes.view(np.uint32)
    tie = (bits >> _DROPPED_BITS) & 1
    normal = ((bits + (1 << (_DROPPED_BITS - 1)) - 1 + tie) >> _DROPPED_BITS) - _BIAS_STEPS
    # Four steps are the smallest normal number, whose code is 4 too.
    subnormal = np.rint(magnitudes * _SUBNORMALS_PER_ONE)
    codes = np.where(magnitudes < _SMALLEST_NORMAL, subnormal, normal).astype(np.uint8)
    return codes | np.where(np.signbit(values), np.uint8(_SIGN), np.uint8(0))


def decode_e5m2(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """e5m2 codes to float32, exact; infinities and NaN too."""
    return (codes.astype(np.uint16) << 8).view(np.float16).astype(np.float32)
