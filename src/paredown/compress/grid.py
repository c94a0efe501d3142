"""Grids in PyTorch: the values that a weight can take.

Shapes: O output rows, G groups of columns, C columns of a group. The conventions are those of
formats/integer.py and formats/fp8.py; in float32 the codes are equal bit for bit. In float64 the
same functions are their own reference. A code is a float that holds an integer (integers, signed)
or an e4m3 number (fp8); its value is (code - zero) * scale.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paredown.errors import CheckpointError
from paredown.formats.e4m3 import MAX_FP8
from paredown.formats.floating import MAX_FINITE
from paredown.formats.grid_weight import GridWeight
from paredown.formats.integer import EPSILON
from paredown.models.decoder.stored_rows import stored_rows
from paredown.spec.weight import ScaleDType, WeightSpec

TORCH_DTYPES: dict[ScaleDType, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


@dataclass(frozen=True, kw_only=True)
class Grid:
    """`scales_OG` are above zero and storable in `scale_dtype`. `zeros_OG` are signed codes, 0 if
    the spec is symmetric. `row_scales_O1` exist if the spec has integer steps: `scales_OG` are
    then integer multiples of them (compress/progressive_groups.py)."""

    spec: WeightSpec
    scale_dtype: ScaleDType
    scales_OG: Tensor
    zeros_OG: Tensor
    row_scales_O1: Tensor | None = None

    def codes(self, values_OGC: Tensor) -> Tensor:
        return encode(values_OGC, self.scales_OG[..., None], self.zeros_OG[..., None], self.spec)

    def values(self, codes_OGC: Tensor) -> Tensor:
        return decode(codes_OGC, self.scales_OG[..., None], self.zeros_OG[..., None])


def fused_grid(parts: Sequence[Grid], num_blocks: int = 1) -> Grid:
    """Returns the grid of a module that holds several roles, from the grids of its parts."""

    def rows(tensors: list[Tensor]) -> Tensor:
        return stored_rows(tensors, num_blocks).to(tensors[0].dtype)

    row_scales = [part.row_scales_O1 for part in parts if part.row_scales_O1 is not None]
    return replace(
        parts[0],
        scales_OG=rows([part.scales_OG for part in parts]),
        zeros_OG=rows([part.zeros_OG for part in parts]),
        row_scales_O1=rows(row_scales) if row_scales else None,
    )


def code_range(spec: WeightSpec) -> tuple[float, float]:
    """Returns the smallest and the largest code."""
    if spec.dtype == "fp8":
        return -MAX_FP8, MAX_FP8
    half = float(1 << (spec.bits - 1))
    return -half, half - 1


def encode(values: Tensor, scales: Tensor, zeros: Tensor, spec: WeightSpec) -> Tensor:
    """Returns the nearest code of each value, ties to even; scales and zeros broadcast."""
    low, high = code_range(spec)
    codes = (values / scales).add_(zeros).clamp_(low, high)
    if spec.dtype == "fp8":
        return codes.float().to(torch.float8_e4m3fn).to(values.dtype)
    return codes.round_()


def decode(codes: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
    return (codes - zeros).mul_(scales)


def grid_of_range(
    lowest_OG: Tensor, highest_OG: Tensor, spec: WeightSpec, scale_dtype: ScaleDType
) -> Grid:
    """Returns the grid that covers `lowest_OG` (at most 0) to `highest_OG` (at least 0)."""
    low, high = code_range(spec)
    if spec.symmetric:
        steps = high if spec.dtype == "fp8" else (high - low) / 2
        scales_OG = torch.maximum(-lowest_OG, highest_OG) / steps
    else:
        # Each is halved first: the difference of two large values may exceed the largest float.
        scales_OG = (highest_OG / 2 - lowest_OG / 2) / ((high - low) / 2)
    scales_OG = storable_scales(scales_OG, scale_dtype)
    zeros_OG = torch.zeros_like(scales_OG)
    if not spec.symmetric:
        zeros_OG = (low - lowest_OG / scales_OG).clamp(low, high).round()
    return Grid(spec=spec, scale_dtype=scale_dtype, scales_OG=scales_OG, zeros_OG=zeros_OG)


def storable_scales(scales: Tensor, dtype: ScaleDType) -> Tensor:
    """Rounds scales to `dtype` and keeps them finite and nonzero, like formats/integer.py."""
    rounded = scales.clamp(max=MAX_FINITE[dtype]).to(TORCH_DTYPES[dtype]).to(scales.dtype)
    return torch.where(rounded == 0, EPSILON[dtype], rounded)


def grouped(weight_OI: Tensor, group_size: int | None) -> Tensor:
    """Reshapes [O, I] to [O, G, C]; the groups must divide the columns."""
    return weight_OI.reshape(weight_OI.shape[0], -1, group_size or weight_OI.shape[1])


def to_weight(codes_OI: Tensor, grid: Grid) -> GridWeight:
    """Returns codes on `grid` in their stored form. Raises CheckpointError if the scales are not
    finite, as for weights that are not."""
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
    return GridWeight(
        spec=spec,
        values_OI=stored_OI,
        scales_OG=grid.scales_OG.float().numpy(),
        zero_points_OG=zeros_OG,
        scale_dtype=grid.scale_dtype,
    )
