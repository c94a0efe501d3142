"""fp8 weights: e4m3 numbers (OCP 8-bit formats, arXiv 2209.05433) with one scale per row or group.

With M the group's largest magnitude:

    s = M / 448        code = e4m3(clamp(w / s))        ties to even

s is rounded to the dtype it is stored in first; a group of zeros keeps a scale above zero.
"""

import numpy as np
import numpy.typing as npt

from paredown.formats.e4m3 import MAX_FP8, encode_fp8
from paredown.formats.floating import check_finite
from paredown.formats.grid_weight import GridWeight
from paredown.formats.integer import group_columns, storable_scales
from paredown.spec.weight import ScaleDType, WeightSpec


def quantize_fp8(
    values_OI: npt.NDArray[np.float32], spec: WeightSpec, scale_dtype: ScaleDType
) -> GridWeight:
    """Rounds [O, I] values to e4m3 codes. Raises UnsupportedError if the group size does not
    divide the columns, CheckpointError for values that are not finite."""
    assert spec.dtype == "fp8", spec.name
    check_finite(values_OI)
    num_rows, num_columns = values_OI.shape
    num_groups = num_columns // group_columns(spec, num_columns)
    values_OGC = values_OI.astype(np.float32, copy=False).reshape(num_rows, num_groups, -1)
    scales_OG = np.abs(values_OGC).max(axis=2) / np.float32(MAX_FP8)
    scales_OG = storable_scales(scales_OG, scale_dtype)
    codes_OGC = encode_fp8(values_OGC / scales_OG[:, :, None])
    return GridWeight(
        spec=spec,
        values_OI=codes_OGC.reshape(values_OI.shape),
        scales_OG=scales_OG,
        scale_dtype=scale_dtype,
    )
