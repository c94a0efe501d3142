"""Integer steps of one row at a time, in Python floats: every row scale and every step that is
tried (docs/methods/qoq.md), and the sum of squared errors of each."""

import math

from paredown.formats.floating import MAX_FINITE
from paredown.spec.weight import ScaleDType, WeightSpec
from references.integer import quantize_group, round_scale

SMALLEST = {"fp32": 2.0**-149, "bf16": 2.0**-133, "fp16": 2.0**-24}


def short_scale(scale: float, dtype: ScaleDType) -> float:
    """4 significant bits, and what 16 steps of it fit into."""
    mantissa, exponent = math.frexp(min(scale, MAX_FINITE[dtype] / 32))
    short = math.ldexp(round(mantissa * 16), exponent - 4)
    return round_scale(max(short, SMALLEST[dtype]), dtype)


def most_steps(zero: int) -> int:
    """The largest step with which codes 0 to 15, less an unsigned zero point, have 8 bits."""
    return max(
        step
        for step in range(1, 17)
        if all(-128 <= (code - zero) * step <= 127 for code in range(16))
    )


def squared_error(values: list[float], scale: float, zero: int) -> float:
    codes = [round(min(max(value / scale + zero - 8, -8), 7)) + 8 for value in values]
    errors = [(code - zero) * scale - value for code, value in zip(codes, values, strict=True)]
    return sum(error * error for error in errors)


def best_step(
    values: list[float], wanted: float, zero: int, row_scale: float, first: int
) -> tuple[float, float]:
    """The scale of a group, and its error."""
    tried = []
    for near in range(first, 2):
        step = min(max(math.floor(wanted / row_scale) + near, 1), most_steps(zero))
        tried.append((squared_error(values, row_scale * step, zero), row_scale * step))
    error, scale = min(tried, key=lambda one: one[0])
    return scale, error


def progressive_row(
    groups: list[list[float]], spec: WeightSpec, dtype: ScaleDType, cuts: bool
) -> tuple[float, list[float], list[int]]:
    """The row scale, and the scales and unsigned zero points of its groups."""
    alone = [quantize_group(values, spec, dtype)[1:] for values in groups]
    zeros = [8 if spec.symmetric else zero for _, zero in alone]
    least = max(wanted / most_steps(zero) for (wanted, _), zero in zip(alone, zeros, strict=True))
    tried = []
    for share in (0.9, 1.0, 1.1, 1.2):
        row_scale = short_scale(least * share, dtype)
        found = [
            best_step(values, wanted, zero, row_scale, -2 if cuts else 0)
            for values, (wanted, _), zero in zip(groups, alone, zeros, strict=True)
        ]
        error = sum(error for _, error in found)
        tried.append((error, row_scale, [scale for scale, _ in found]))
    _, row_scale, scales = min(tried, key=lambda one: one[0])
    return row_scale, scales, zeros
