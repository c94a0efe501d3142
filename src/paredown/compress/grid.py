"""Grids in PyTorch: the numbers that a weight may become, and the search for a group's range.

Shapes: O output rows, G groups of columns, C columns of a group. The conventions are those of
formats/integer.py and formats/fp8.py; in float32 the codes are theirs bit for bit. In float64 the
same functions serve as their own reference. A code is a float holding a whole number (integers,
signed) or an e4m3 number (fp8); its value is (code - zero) * scale.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paredown.errors import CheckpointError
from paredown.formats.floating import MAX_FINITE
from paredown.formats.fp8 import MAX_FP8
from paredown.formats.integer import EPSILON
from paredown.formats.weight import Weight
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

TORCH_DTYPES: dict[ScaleDType, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


@dataclass(frozen=True, kw_only=True)
class Grid:
    """`scales_OG` above zero and storable in `scale_dtype`; `zeros_OG` signed codes, 0 where the
    spec is symmetric."""

    spec: WeightSpec
    scale_dtype: ScaleDType
    scales_OG: Tensor
    zeros_OG: Tensor

    def codes(self, values_OGC: Tensor) -> Tensor:
        return encode(values_OGC, self.scales_OG[..., None], self.zeros_OG[..., None], self.spec)

    def values(self, codes_OGC: Tensor) -> Tensor:
        return decode(codes_OGC, self.scales_OG[..., None], self.zeros_OG[..., None])


def code_range(spec: WeightSpec) -> tuple[float, float]:
    """The smallest and the largest code."""
    if spec.dtype == "fp8":
        return -MAX_FP8, MAX_FP8
    half = float(1 << (spec.bits - 1))
    return -half, half - 1


def encode(values: Tensor, scales: Tensor, zeros: Tensor, spec: WeightSpec) -> Tensor:
    """The nearest code of each value, ties to even; scales and zeros broadcast."""
    low, high = code_range(spec)
    codes = (values / scales).add_(zeros).clamp_(low, high)
    if spec.dtype == "fp8":
        return codes.float().to(torch.float8_e4m3fn).to(values.dtype)
    return codes.round_()


def decode(codes: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
    return (codes - zeros).mul_(scales)


def fit_grid(
    values_OGC: Tensor,
    spec: WeightSpec,
    scale_dtype: ScaleDType,
    estimator: RangeEstimator = "minmax",
) -> Grid:
    """A scale and a zero point for each [.., C] group of values; leading dimensions are kept."""
    lowest = values_OGC.amin(-1).clamp(max=0)
    highest = values_OGC.amax(-1).clamp(min=0)
    if estimator == "percentile":
        lowest, highest = _percentiles(values_OGC)
    grid = grid_of_range(lowest, highest, spec, scale_dtype)
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
    """One scale and zero point for blocks of `block_rows` rows by `spec.group_size` columns; None
    is all of them, so that None and None are one scale for the whole tensor. A last block may be
    shorter. Stored as rows that happen to share their scales."""
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
    """What "mse" makes small, of each group."""
    error_OGC = grid.values(grid.codes(values_OGC)).sub_(values_OGC)
    return error_OGC.abs_().pow_(_MSE_NORM).sum(-1)


def grid_of_range(
    lowest_OG: Tensor, highest_OG: Tensor, spec: WeightSpec, scale_dtype: ScaleDType
) -> Grid:
    """The grid that reaches from `lowest_OG` (at most 0) to `highest_OG` (at least 0)."""
    low, high = code_range(spec)
    if spec.symmetric:
        steps = high if spec.dtype == "fp8" else (high - low) / 2
        scales_OG = torch.maximum(-lowest_OG, highest_OG) / steps
    else:
        # Halved first: the difference of two large values may pass the largest float.
        scales_OG = (highest_OG / 2 - lowest_OG / 2) / ((high - low) / 2)
    scales_OG = storable_scales(scales_OG, scale_dtype)
    zeros_OG = torch.zeros_like(scales_OG)
    if not spec.symmetric:
        zeros_OG = (low - lowest_OG / scales_OG).clamp(low, high).round()
    return Grid(spec=spec, scale_dtype=scale_dtype, scales_OG=scales_OG, zeros_OG=zeros_OG)


def storable_scales(scales: Tensor, dtype: ScaleDType) -> Tensor:
    """Rounded to `dtype`, finite, and never zero; formats/integer.py's in PyTorch."""
    rounded = scales.clamp(max=MAX_FINITE[dtype]).to(TORCH_DTYPES[dtype]).to(scales.dtype)
    return torch.where(rounded == 0, EPSILON[dtype], rounded)


def grouped(weight_OI: Tensor, group_size: int | None) -> Tensor:
    """[O, I] as [O, G, C]; the caller has checked that groups divide the columns."""
    return weight_OI.reshape(weight_OI.shape[0], -1, group_size or weight_OI.shape[1])


def to_weight(codes_OI: Tensor, grid: Grid) -> Weight:
    """Codes on `grid` as they are stored. Raises CheckpointError when the scales are not finite,
    as those of weights that are not."""
    if not bool(torch.isfinite(grid.scales_OG).all() and torch.isfinite(codes_OI).all()):
        raise CheckpointError(
            "a weight became values that are not finite numbers",
            seen="NaN or infinite scales or codes",
            remedy="The checkpoint is damaged or its training diverged; use another one.",
        )
    spec = grid.spec
    zeros_OG: npt.NDArray[np.uint8] | None = None
    if spec.dtype == "fp8":
        stored_OI = codes_OI.float().to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    else:
        half = 1 << (spec.bits - 1)
        stored_OI = (codes_OI + half).to(torch.uint8).numpy()
        if not spec.symmetric:
            zeros_OG = (grid.zeros_OG + half).to(torch.uint8).numpy()
    return Weight(
        spec=spec,
        values_OI=stored_OI,
        scales_OG=grid.scales_OG.float().numpy(),
        zero_points_OG=zeros_OG,
        scale_dtype=grid.scale_dtype,
    )


def _percentiles(values_OGC: Tensor) -> tuple[Tensor, Tensor]:
    """The range without the outermost (1 - PERCENTILE) share of the values, half on each side."""
    ordered = values_OGC.sort(-1).values
    cut = int(values_OGC.shape[-1] * (1 - PERCENTILE) / 2)
    last = ordered.shape[-1] - 1
    return ordered[..., cut].clamp(max=0), ordered[..., last - cut].clamp(min=0)
