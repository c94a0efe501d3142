"""Progressive group quantization (QoQ; QServe, arXiv 2405.04532, section 4.1;
docs/methods/qoq.md): a group's scale is its row's scale times a small integer, its step.

A code q with zero point z then stands for (q - z) * step * row scale. (q - z) * step is an 8-bit
integer, so a kernel of int8 rows multiplies with it and scales a row once. The paper rounds to
int8 first and that to int4. Here both scales are found at once: for a few row scales, each group
takes the step of least squared error near its own best scale. A row scale has so few significant
bits that its product with a step is exact in every scale dtype.

Shapes: O output rows, G groups of columns, C columns of a group.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from paredown.compress.grid import TORCH_DTYPES, Grid
from paredown.formats.floating import MAX_FINITE
from paredown.formats.integer_steps import MOST_STEPS
from paredown.spec.weight import ScaleDType

# bf16 holds 8 significant bits, and steps have 4 besides their trailing zeros.
_ROW_BITS = 4
# Shares of the least row scale at which no range is cut. Twice as many gain almost nothing
# (docs/log.md).
_ROW_SHARES = (0.9, 1.0, 1.1, 1.2)
# The steps to try, counted from the one at or just below the wanted scale: its neighbours, or also
# steps that cut ranges down to about four fifths.
NEIGHBOURS = (0, 1)
NEIGHBOURS_AND_CUTS = (-2, -1, 0, 1)
# Values rounded at once; this limits the temporaries and keeps them in the cache.
_CHUNK_VALUES = 1 << 18


# The cost [O, G] of changes of values [O, G, C] for each group; it may overwrite the changes.
GroupLoss = Callable[[Tensor], Tensor]


def squares(moved_OGC: Tensor) -> Tensor:
    """Returns the squared changes of the weights themselves."""
    return moved_OGC.square_().sum(-1)


def fit_progressive_groups(
    values_OGC: Tensor,
    wanted: Grid,
    near_steps: Sequence[int],
    row_scales_O1: Tensor | None = None,
    loss: GroupLoss = squares,
) -> Grid:
    """Returns the grid of integer steps with the least `loss`. `wanted` is the grid that each
    group alone would have; it determines the zero points. Row scales are searched unless they are
    given."""
    if row_scales_O1 is None:
        least_O1 = (wanted.scales_OG / most_steps(wanted.zeros_OG)).amax(1, keepdim=True)
        tried = [short_scales(least_O1 * share, wanted.scale_dtype) for share in _ROW_SHARES]
        row_scales_KO1 = torch.stack(tried)
    else:
        row_scales_KO1 = row_scales_O1[None]
    num_rows = max(1, _CHUNK_VALUES // values_OGC[0].numel())
    best_O1 = torch.empty_like(row_scales_KO1[0])
    scales_OG = torch.empty_like(wanted.scales_OG)
    for start in range(0, values_OGC.shape[0], num_rows):
        rows = slice(start, start + num_rows)
        stretch = replace(wanted, scales_OG=wanted.scales_OG[rows], zeros_OG=wanted.zeros_OG[rows])
        best_O1[rows], scales_OG[rows] = _best(
            values_OGC[rows], stretch, row_scales_KO1[:, rows], near_steps, loss
        )
    return replace(wanted, scales_OG=scales_OG, row_scales_O1=best_O1)


def most_steps(zeros_OG: Tensor) -> Tensor:
    """Returns the largest step for which all 16 codes, less their zero point, stay within 8
    bits."""
    codes_below_OG = zeros_OG + 8
    fitting_OG = torch.minimum(128 / codes_below_OG, 127 / (15 - codes_below_OG))
    return fitting_OG.floor().clamp(max=MOST_STEPS)


def nearest_steps(scales_OG: Tensor, zeros_OG: Tensor, row_scales_O1: Tensor) -> Tensor:
    """Returns the scales nearest to `scales_OG` that are steps of their rows."""
    steps_OG = (scales_OG / row_scales_O1).round().clamp(min=1)
    return torch.minimum(steps_OG, most_steps(zeros_OG)) * row_scales_O1


def short_scales(scales: Tensor, dtype: ScaleDType) -> Tensor:
    """Rounds scales to so few bits that every step's product with them is exact in `dtype`, and
    keeps them finite and above zero."""
    mantissas, exponents = torch.frexp(scales.clamp(max=MAX_FINITE[dtype] / (2 * MOST_STEPS)))
    short = torch.ldexp((mantissas * 2**_ROW_BITS).round(), exponents - _ROW_BITS)
    # Near zero there are fewer bits.
    info = torch.finfo(TORCH_DTYPES[dtype])
    smallest = info.smallest_normal * info.eps
    return short.clamp(min=smallest).to(TORCH_DTYPES[dtype]).to(scales.dtype)


def _best(
    values_OGC: Tensor,
    wanted: Grid,
    row_scales_KO1: Tensor,
    near_steps: Sequence[int],
    loss: GroupLoss,
) -> tuple[Tensor, Tensor]:
    """Returns the best of K row scales for each row, and the scales of its groups."""
    best_O1 = row_scales_KO1[0]
    scales_OG = nearest_steps(wanted.scales_OG, wanted.zeros_OG, best_O1)
    least_O1 = torch.full_like(best_O1, torch.inf)
    for row_scales_O1 in row_scales_KO1:
        tried_OG, errors_OG = _best_steps(values_OGC, wanted, row_scales_O1, near_steps, loss)
        errors_O1 = errors_OG.sum(1, keepdim=True)
        better_O1 = errors_O1 < least_O1
        least_O1 = torch.where(better_O1, errors_O1, least_O1)
        best_O1 = torch.where(better_O1, row_scales_O1, best_O1)
        scales_OG = torch.where(better_O1, tried_OG, scales_OG)
    return best_O1, scales_OG


def _best_steps(
    values_OGC: Tensor,
    wanted: Grid,
    row_scales_O1: Tensor,
    near_steps: Sequence[int],
    loss: GroupLoss,
) -> tuple[Tensor, Tensor]:
    """Returns the groups' scales with the least loss, and that loss."""
    most_OG = most_steps(wanted.zeros_OG)
    below_OG = (wanted.scales_OG / row_scales_O1).floor()
    # This stays if errors are too large for a float.
    best_OG = nearest_steps(wanted.scales_OG, wanted.zeros_OG, row_scales_O1)
    least_OG = torch.full_like(best_OG, torch.inf)
    for near in near_steps:
        tried_OG = torch.minimum((below_OG + near).clamp(min=1), most_OG) * row_scales_O1
        grid = replace(wanted, scales_OG=tried_OG)
        errors_OG = loss(grid.values(grid.codes(values_OGC)).sub_(values_OGC))
        better_OG = errors_OG < least_OG
        least_OG = torch.where(better_OG, errors_OG, least_OG)
        best_OG = torch.where(better_OG, tried_OG, best_OG)
    return best_OG, least_OG
