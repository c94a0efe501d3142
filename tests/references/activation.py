"""What rounding activations means, one value at a time in float64 and Fractions."""

import math
from fractions import Fraction

import numpy as np

Array = np.ndarray

# Mantissa bits, bias, largest finite number.
FLOATS = {
    "fp8_e4m3": (3, 7, 448.0),
    "fp8_e5m2": (2, 15, 57344.0),
    "fp16": (10, 15, 65504.0),
    "bf16": (7, 127, (2 - 2.0**-7) * 2.0**127),
}


def nearest_number(x: float, dtype: str) -> float:
    """The nearest number of a small float format, ties to even, clamped to the largest."""
    mantissa, bias, largest = FLOATS[dtype]
    magnitude = Fraction(abs(x))
    if magnitude == 0:
        return x
    exponent = max(math.frexp(abs(x))[1] - 1, 1 - bias)
    step = Fraction(2) ** (exponent - mantissa)
    rounded = min(float(round(magnitude / step) * step), largest)
    return math.copysign(rounded, x)


def is_beyond(x: float, dtype: str) -> bool:
    """Whether an unbounded format of that mantissa would have a nearer number."""
    mantissa, _, largest = FLOATS[dtype]
    step = Fraction(2) ** (math.frexp(largest)[1] - 1 - mantissa)
    return round(Fraction(abs(x)) / step) * step > Fraction(largest)


def integer_codes(values: Array, bits: int, symmetric: bool) -> tuple[list[int], float, int]:
    """Codes, scale and zero point of values that share a scale, in float64."""
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    values = values.astype(np.float64)
    if symmetric and bits == 1:
        return [-1 if x < 0 else 1 for x in values], float(np.abs(values).mean()), 0
    if symmetric:
        limit = float(np.abs(values).max())
        codes = [round(x * high / limit) if limit else 0 for x in values]
        return codes, limit / high, 0
    lowest, highest = min(0.0, float(values.min())), max(0.0, float(values.max()))
    scale = (highest - lowest) / (high - low) or 1.0
    zero = round(min(max(low - lowest / scale, low), high))
    return [round(min(max(x / scale + zero, low), high)) for x in values], scale, zero


def shared_slices(shape: tuple[int, int], granularity: str, group_size: int | None) -> list:
    """Index tuples of what shares a scale in a [T, I] array."""
    rows, columns = shape
    if granularity == "tensor":
        return [(slice(None), slice(None))]
    size = columns if granularity == "token" else group_size
    assert size is not None
    return [
        (slice(row, row + 1), slice(first, first + size))
        for row in range(rows)
        for first in range(0, columns, size)
    ]
