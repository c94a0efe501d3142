"""Converts a stored weight to one that the native core holds: the same, or one that has a kernel.

int1 and int7 are held as int2 and int8: codes and zero points move by the difference of the two
midpoints, so that every value stays the same. They take the memory of the wider codes. Groups that
are not a multiple of 32 columns have no kernel. Such a weight is held dequantized, in the dtype of
its scales.
"""

from dataclasses import replace

import numpy as np

from paredown.formats.grid_weight import GridWeight, float_weight
from paredown.formats.weight import CoreWeight
from paredown.spec.run_form import RunForm
from paredown.spec.weight import DTYPES


def to_native(weight: CoreWeight, form: RunForm) -> CoreWeight:
    """Returns the weight in the form `form`: unchanged if the core has a kernel for its codes."""
    if form.is_dequantized:
        return float_weight(weight.dequantize(), weight.scale_dtype)[0]
    if form.kind == weight.spec.dtype:
        return weight
    assert isinstance(weight, GridWeight)
    return _widened(weight, form)


def _widened(weight: GridWeight, form: RunForm) -> GridWeight:
    shift = np.uint8((1 << (DTYPES[form.kind].bits - 1)) - (1 << (weight.spec.bits - 1)))
    zeros_OG = weight.zero_points_OG
    return replace(
        weight,
        spec=replace(weight.spec, dtype=form.kind),
        values_OI=weight.values_OI.astype(np.uint8, copy=False) + shift,
        zero_points_OG=None if zeros_OG is None else zeros_OG + shift,
    )
