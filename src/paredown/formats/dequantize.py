"""The float32 values of a weight in any format."""

import numpy as np
import numpy.typing as npt

from paredown.formats.floating import round_to
from paredown.formats.fp8 import decode_fp8
from paredown.formats.tensor import bf16_to_float32
from paredown.formats.weight import Weight


def dequantize(weight: Weight) -> npt.NDArray[np.float32]:
    """[O, I]. For integers (code - zero point) * scale, for fp8 number * scale, rounded to the
    dtype of the scale: bit for bit what compressed-tensors' decompression gives. Codes have at most
    8 bits, so the left factor is exact in every scale dtype, and the product is rounded once."""
    if not weight.spec.is_quantized:
        if weight.spec.dtype == "bf16":
            return bf16_to_float32(weight.values_OI)
        return weight.values_OI.astype(np.float32)
    return round_to(unrounded(weight), weight.scale_dtype)


def unrounded(weight: Weight) -> npt.NDArray[np.float32]:
    """[O, I] of a quantized weight in float32, before the rounding to the dtype of the scale: what
    the native core multiplies with."""
    assert weight.scales_OG is not None
    num_rows, num_columns = weight.shape
    num_groups = weight.scales_OG.shape[1]
    values_OGC = _unscaled(weight).reshape(num_rows, num_groups, -1)
    with np.errstate(over="ignore"):
        values_OGC *= weight.scales_OG[:, :, None]
    return values_OGC.reshape(num_rows, num_columns)


def _unscaled(weight: Weight) -> npt.NDArray[np.float32]:
    """What the scales multiply, [O, I]."""
    if weight.spec.dtype == "fp8":
        return decode_fp8(weight.values_OI)
    codes_OI = weight.values_OI.astype(np.float32)
    if weight.zero_points_OG is None:
        codes_OI -= np.float32(1 << (weight.spec.bits - 1))
    else:
        size = weight.shape[1] // weight.zero_points_OG.shape[1]
        codes_OI -= np.repeat(weight.zero_points_OG, size, axis=1)
    return codes_OI
