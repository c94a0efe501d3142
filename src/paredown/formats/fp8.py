"""fp8 weights: e4m3 numbers (OCP 8-bit formats, arXiv 2209.05433) with one scale per row or group.

A byte is a sign, four bits of exponent (bias 7) and three of mantissa; there is no infinity, 0x7f
and 0xff are NaN, the largest finite number is 448. With M the group's largest magnitude:

    s = M / 448        code = e4m3(clamp(w / s))        ties to even

s is rounded to the dtype it is stored in first; a group of zeros keeps a scale above zero.
"""

import numpy as np
import numpy.typing as npt

from paredown.formats.floating import check_finite
from paredown.formats.integer import group_columns, storable_scales
from paredown.formats.small_float import SIGN, encode_small_float
from paredown.formats.weight import Weight
from paredown.spec.weight import ScaleDType, WeightSpec

MAX_FP8 = 448.0
NAN = 0x7F


def quantize_fp8(
    values_OI: npt.NDArray[np.float32], spec: WeightSpec, scale_dtype: ScaleDType
) -> Weight:
    """[O, I] values as e4m3 codes. Raises UnsupportedError when the group size does not divide the
    columns, CheckpointError for values that are not finite."""
    assert spec.dtype == "fp8", spec.name
    check_finite(values_OI)
    num_rows, num_columns = values_OI.shape
    num_groups = num_columns // group_columns(spec, num_columns)
    values_OGC = values_OI.astype(np.float32, copy=False).reshape(num_rows, num_groups, -1)
    scales_OG = np.abs(values_OGC).max(axis=2) / np.float32(MAX_FP8)
    scales_OG = storable_scales(scales_OG, scale_dtype)
    codes_OGC = encode_fp8(values_OGC / scales_OG[:, :, None])
    return Weight(
        spec=spec,
        values_OI=codes_OGC.reshape(values_OI.shape),
        scales_OG=scales_OG,
        scale_dtype=scale_dtype,
    )


def encode_fp8(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Finite float32 values to the nearest e4m3 code, ties to even, clamped to the largest."""
    return encode_small_float(values, mantissa_bits=3, bias=7, largest=MAX_FP8)


def decode_fp8(codes: npt.NDArray[np.generic]) -> npt.NDArray[np.float32]:
    """e4m3 codes to float32, exact."""
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
