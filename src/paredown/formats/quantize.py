"""Rounds to nearest on any grid."""

import numpy as np
import numpy.typing as npt

from paredown.formats.fp8 import quantize_fp8
from paredown.formats.grid_weight import GridWeight
from paredown.formats.integer import quantize_integer
from paredown.spec.weight import ScaleDType, WeightSpec


def quantize(
    values_OI: npt.NDArray[np.float32], spec: WeightSpec, scale_dtype: ScaleDType
) -> GridWeight:
    """Rounds [O, I] values to a quantized `spec`. Raises UnsupportedError if the group size does
    not divide the columns, CheckpointError for values that are not finite."""
    assert not spec.integer_steps, spec.name
    if spec.dtype == "fp8":
        return quantize_fp8(values_OI, spec, scale_dtype)
    return quantize_integer(values_OI, spec, scale_dtype)
