"""The very bits of codes times inputs in floats, one fused multiply-add after the other in
Fractions: what every instruction set that has a fused multiply-add must give."""

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from references.linear import INTEGER_BITS, Floats, LinearCase, bf16_input

# Columns of a quad in the order in which they are added.
QUAD_ORDER = (2, 0, 3, 1)
SMALLEST_BF16_INPUT = 2.0**-100
_MANTISSA_BITS = 23


def to_float32(value: Fraction) -> Fraction:
    """The nearest normal float32, ties to even."""
    if value == 0:
        return value
    top = abs(value)
    exponent = top.numerator.bit_length() - top.denominator.bit_length()
    if Fraction(2) ** exponent > top:
        exponent -= 1
    step = Fraction(2) ** (exponent - _MANTISSA_BITS)
    return round(value / step) * step


def seen_floats(case: LinearCase, x_TI: Floats) -> npt.NDArray[np.float64]:
    """Inputs as they are, or rounded to bf16, which takes very small ones for zero."""
    if case.activations == "fp32":
        return x_TI.astype(np.float64)
    return np.where(np.abs(x_TI) < SMALLEST_BF16_INPUT, 0.0, bf16_input(x_TI))


def coded_linear(case: LinearCase, x_TI: Floats) -> Floats:
    """Sums go over the columns of a group, quad by quad, a total over the groups."""
    assert case.scales_OG is not None
    rows, columns = case.values_OI.shape
    zeros_OG = np.full(case.scales_OG.shape, 1 << (INTEGER_BITS[case.kind] - 1))
    if case.zero_points_OG is not None:
        zeros_OG = case.zero_points_OG.astype(np.int64)
    seen_TI = seen_floats(case, x_TI)
    y_TO = np.empty((len(x_TI), rows), dtype=np.float32)
    for token, row in np.ndindex(y_TO.shape):
        total = Fraction(0)
        for group, scale in enumerate(case.scales_OG[row]):
            first = group * case.group_size
            total_of_group = Fraction(0)
            for column in _ordered(first, min(first + case.group_size, columns)):
                number = int(case.values_OI[row, column]) - int(zeros_OG[row, group])
                product = number * Fraction(float(seen_TI[token, column]))
                total_of_group = to_float32(total_of_group + product)
            total = to_float32(total + total_of_group * Fraction(float(scale)))
        if case.bias_O is not None:
            total = to_float32(total + Fraction(float(case.bias_O[row])))
        y_TO[token, row] = float(total)
    return y_TO


def _ordered(first: int, end: int) -> list[int]:
    quads = range(first, end, 4)
    return [quad + place for quad in quads for place in QUAD_ORDER if quad + place < end]
