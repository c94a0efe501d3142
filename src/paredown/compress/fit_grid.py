"""Searches each group's grid by the range that it covers.

Shapes: O output rows, G groups of columns, C columns of a group.
"""

from typing import Literal

import torch
from torch import Tensor

from paredown.compress.grid import Grid, grid_of_range, grouped
from paredown.compress.progressive_groups import (
    NEIGHBOURS,
    NEIGHBOURS_AND_CUTS,
    fit_progressive_groups,
)
from paredown.spec.weight import ScaleDType, WeightSpec

# minmax      the smallest and the largest value (absmax where the grid is symmetric)
# percentile  the same after the outermost values are left out, those of PERCENTILE's two sides
# mse         of ranges shrunk step by step, the one with the least |error|^2.4 (as GPTQ's authors
#             search it: https://github.com/IST-DASLab/gptq, quant.py; in steps of 1/25, not 1/100)
RangeEstimator = Literal["minmax", "percentile", "mse"]
PERCENTILE = 0.999
_MSE_NORM = 2.4
_MSE_STEPS = 25
_MSE_SMALLEST = 0.2


def fit_grid(
    values_OGC: Tensor,
    spec: WeightSpec,
    scale_dtype: ScaleDType,
    estimator: RangeEstimator = "minmax",
    row_scales_O1: Tensor | None = None,
) -> Grid:
    """Returns a scale and a zero point for each [.., C] group of values; leading dimensions are
    kept. For integer steps, `mse` uses squared errors. `row_scales_O1` are the row scales of
    integer steps; None searches them."""
    lowest = values_OGC.amin(-1).clamp(max=0)
    highest = values_OGC.amax(-1).clamp(min=0)
    if estimator == "percentile":
        lowest, highest = _percentiles(values_OGC)
    grid = grid_of_range(lowest, highest, spec, scale_dtype)
    if spec.integer_steps:
        near_steps = NEIGHBOURS_AND_CUTS if estimator == "mse" else NEIGHBOURS
        return fit_progressive_groups(values_OGC, grid, near_steps, row_scales_O1)
    if estimator != "mse":
        return grid
    best = _distance(grid, values_OGC)
    scales, zeros = grid.scales_OG.clone(), grid.zeros_OG.clone()
    for step in range(1, round(_MSE_STEPS * (1 - _MSE_SMALLEST))):
        shrink = 1 - step / _MSE_STEPS
        tried = grid_of_range(lowest * shrink, highest * shrink, spec, scale_dtype)
        error = _distance(tried, values_OGC)
        better = error < best
        best = torch.where(better, error, best)
        scales = torch.where(better, tried.scales_OG, scales)
        zeros = torch.where(better, tried.zeros_OG, zeros)
    return Grid(spec=spec, scale_dtype=scale_dtype, scales_OG=scales, zeros_OG=zeros)


def fit_shared_grid(
    weight_OI: Tensor,
    spec: WeightSpec,
    scale_dtype: ScaleDType,
    block_rows: int | None,
    estimator: RangeEstimator = "minmax",
) -> Grid:
    """Returns one scale and zero point for each block of `block_rows` rows by `spec.group_size`
    columns. None means all of them, so that None and None give one scale for the whole tensor. A
    last block may be shorter. The grid is stored as rows that happen to share scales."""
    num_rows = weight_OI.shape[0]
    block_rows = block_rows or num_rows
    blocks: list[Grid] = []
    for start in range(0, num_rows, block_rows):
        rows_OGC = grouped(weight_OI[start : start + block_rows], spec.group_size)
        # One row that holds all of the block's values.
        values_OGC = rows_OGC.transpose(0, 1).flatten(1)[None]
        block = fit_grid(values_OGC, spec, scale_dtype, estimator)
        blocks += [block] * rows_OGC.shape[0]
    return Grid(
        spec=spec,
        scale_dtype=scale_dtype,
        scales_OG=torch.cat([block.scales_OG for block in blocks]),
        zeros_OG=torch.cat([block.zeros_OG for block in blocks]),
    )


def _distance(grid: Grid, values_OGC: Tensor) -> Tensor:
    """Returns for each group the error that "mse" minimizes."""
    error_OGC = grid.values(grid.codes(values_OGC)).sub_(values_OGC)
    return error_OGC.abs_().pow_(_MSE_NORM).sum(-1)


def _percentiles(values_OGC: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the range without the outermost (1 - PERCENTILE) share of the values, half on each
    side."""
    ordered = values_OGC.sort(-1).values
    cut = int(values_OGC.shape[-1] * (1 - PERCENTILE) / 2)
    last = ordered.shape[-1] - 1
    return ordered[..., cut].clamp(max=0), ordered[..., last - cut].clamp(min=0)
