"""e5m2 numbers (OCP 8-bit formats, arXiv 2209.05433): a sign, five exponent bits (bias 15) and two
mantissa bits.

A code is the upper byte of the same number in fp16. 0x7c is infinity, larger codes are NaN, and
the largest finite number is 57344. Below 2^-14 numbers are multiples of 2^-16.

Weights are kept as e4m3 (formats/fp8.py). e5m2 has one bit less of precision, and the range for
gradients and activations, which vary more.
"""

import numpy as np
import numpy.typing as npt

from paredown.formats.small_float import encode_small_float

MAX_E5M2 = 57344.0


def encode_e5m2(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Rounds finite float32 values to the nearest e5m2 code, ties to even, clamped to the
    largest."""
    return encode_small_float(values, mantissa_bits=2, bias=15, largest=MAX_E5M2)


def decode_e5m2(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Converts e5m2 codes to float32, exactly, infinities and NaN included."""
    return (codes.astype(np.uint16) << 8).view(np.float16).astype(np.float32)
