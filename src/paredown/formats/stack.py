"""Weights that read the same input, as one weight."""

from collections.abc import Sequence

import numpy as np

from paredown.formats.weight import Weight


def stack_rows(weights: Sequence[Weight]) -> Weight:
    """The output rows of all `weights`, one below the other; they must share spec, width
    and input scale."""
    first = weights[0]
    if len(weights) == 1:
        return first
    scales = [weight.scales_OG for weight in weights if weight.scales_OG is not None]
    zeros = [weight.zero_points_OG for weight in weights if weight.zero_points_OG is not None]
    return Weight(
        spec=first.spec,
        values_OI=np.concatenate([weight.values_OI for weight in weights]),
        scales_OG=np.concatenate(scales) if scales else None,
        zero_points_OG=np.concatenate(zeros) if zeros else None,
        scale_dtype=first.scale_dtype,
        input_scale=first.input_scale,
    )
