"""The float32 values of a weight in any format."""

import numpy as np
import numpy.typing as npt

from paredown.formats.floating import round_to
from paredown.formats.tensor import bf16_to_float32
from paredown.formats.weight import Weight


def dequantize(weight: Weight) -> npt.NDArray[np.float32]:
    """[O, I]. For integers (code - zero point) * scale, rounded to the dtype of the scale: bit for
    bit what compressed-tensors' decompression gives. Codes have at most 8 bits, so the difference
    is exact in every scale dtype, and the product is rounded once."""
    if not weight.spec.is_integer:
        if weight.spec.dtype == "bf16":
            return bf16_to_float32(weight.values_OI)
        return weight.values_OI.astype(np.float32)
    assert weight.scales_OG is not None
    num_rows, num_columns = weight.shape
    num_groups = weight.scales_OG.shape[1]
    codes_OGC = weight.values_OI.reshape(num_rows, num_groups, -1).astype(np.float32)
    if weight.zero_points_OG is None:
        codes_OGC -= np.float32(1 << (weight.spec.bits - 1))
    else:
        codes_OGC -= weight.zero_points_OG[:, :, None]
    with np.errstate(over="ignore"):
        codes_OGC *= weight.scales_OG[:, :, None]
    return round_to(codes_OGC, weight.scale_dtype).reshape(num_rows, num_columns)
