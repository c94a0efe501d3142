"""The form in which the native core holds a weight: its own, or one that has a kernel.

int1 and int7 are held in the codes of int2 and int8: codes and zero points move by the difference
of the two middles, so that every value stays what it was. They take the wider room in memory.
Groups that are no multiple of 32 columns have no kernel: such a weight is held dequantized, in the
dtype of its scales.
"""

from dataclasses import replace

import numpy as np

from paredown.formats.dequantize import dequantize
from paredown.formats.floating import to_weight
from paredown.formats.weight import Weight
from paredown.spec.weight import BITS, HELD_AS


def to_native(weight: Weight) -> Weight:
    """The weight itself where the core has a kernel for it."""
    spec = weight.spec
    if spec.is_quantized and not spec.has_kernel(weight.shape[1]):
        return to_weight(dequantize(weight), weight.scale_dtype)[0]
    return widen(weight) if spec.dtype in HELD_AS else weight


def widen(weight: Weight) -> Weight:
    """An int1 or int7 weight in the codes of int2 or int8."""
    wider = HELD_AS[weight.spec.dtype]
    shift = np.uint8((1 << (BITS[wider] - 1)) - (1 << (weight.spec.bits - 1)))
    zeros_OG = weight.zero_points_OG
    return replace(
        weight,
        spec=replace(weight.spec, dtype=wider),
        values_OI=weight.values_OI.astype(np.uint8, copy=False) + shift,
        zero_points_OG=None if zeros_OG is None else zeros_OG + shift,
    )
