"""Integer steps: group scales that are integer multiples of one number in each row.

With scale = row scale * step, a code q with zero point z stands for (q - z) * step * row scale.
For small steps (q - z) * step is an 8-bit integer, so that int4 groups run as int8 rows (QServe,
arXiv 2405.04532; docs/methods/qoq.md). No file records this; it is recognized from the scales.

Shapes: O output rows, I input columns, G groups of columns.
"""

import numpy as np
import numpy.typing as npt

from paredown.formats.weight import CoreWeight

MOST_STEPS = 16
# The significant bits of float32, including the one before the point.
_SIGNIFICANT_BITS = 24
# A row's largest scale is at most MOST_STEPS times its smallest.
_MOST_SHIFT = 5


def integer_steps(
    weight: CoreWeight,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]] | None:
    """Returns the row scales [O] and steps [O, G] of an int4 weight in groups. Returns None if its
    scales are not such multiples, or if some (q - zero point) * step exceeds 8 bits."""
    if weight.spec.dtype != "int4":
        return None
    arrays = weight.arrays()
    scales_OG, zeros_OG = arrays.get("scales"), arrays.get("zero_points")
    if scales_OG is None or scales_OG.shape[1] == 1:
        return None
    found = steps_of(scales_OG.astype(np.float32, copy=False))
    if found is None or zeros_OG is None:
        return found
    signed_OG, steps_OG = zeros_OG.astype(np.int32), found[1]
    fits = (signed_OG * steps_OG <= 128) & ((15 - signed_OG) * steps_OG <= 127)
    return found if fits.all() else None


def steps_of(
    scales_OG: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]] | None:
    """Returns the row scales [O] and steps [O, G], 1 to 16, whose products equal the scales
    exactly. Row scales are as large as possible. Returns None if a row has none.

    In units of its smallest last place a row's scales are integers, and their greatest common
    divisor is the largest possible row scale.
    """
    if not (np.isfinite(scales_OG).all() and (scales_OG > 0).all()):
        return None
    mantissas_OG, exponents_OG = np.frexp(scales_OG)
    shifts_OG = exponents_OG - exponents_OG.min(axis=1, keepdims=True)
    if shifts_OG.max(initial=0) > _MOST_SHIFT:
        return None
    whole_OG = np.ldexp(mantissas_OG, _SIGNIFICANT_BITS).astype(np.int32) << shifts_OG
    divisors_O1 = np.gcd.reduce(whole_OG, axis=1, keepdims=True)
    steps_OG = whole_OG // divisors_O1
    if steps_OG.max(initial=0) > MOST_STEPS:
        return None
    return scales_OG[:, 0] / steps_OG[:, 0].astype(np.float32), steps_OG.astype(np.uint8)
