"""Static activation scales: one calibrated range for all values at a point."""

from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor

from paredown.compress.activations import ActivationGrid, StaticScale, round_activations
from paredown.compress.fit_grid import PERCENTILE
from paredown.errors import CheckpointError

# How the range of a scale is found (`ActivationRange.static_scale`).
ActivationEstimator = Literal["minmax", "running", "percentile", "mse"]
ACTIVATION_ESTIMATORS: tuple[ActivationEstimator, ...] = get_args(ActivationEstimator)
# The share of the batches before that is kept in a running range.
_MOMENTUM = 0.9

# Candidate ranges shrink from the whole one to a fifth of it in this many steps.
_MSE_STEPS = 100
_MSE_SMALLEST = 0.2


@dataclass
class ActivationRange:
    """The values seen at a point: exact extremes, their running means over the batches (None before
    the first), and a sample of at most `values_per_batch` values per batch, which is all that
    percentile and mse use."""

    values_per_batch: int = 1 << 16
    lowest: float = 0.0
    highest: float = 0.0
    running: tuple[float, float] | None = None
    samples: list[Tensor] = field(default_factory=list)

    def observe(self, x: Tensor) -> None:
        """Records values. Raises CheckpointError for NaN or infinity."""
        flat = x.reshape(-1)
        lowest, highest = (float(bound) for bound in flat.aminmax())
        if not (abs(lowest) < float("inf") and abs(highest) < float("inf")):
            raise CheckpointError(
                "activations are not finite numbers",
                seen=f"values from {lowest} to {highest}",
                remedy="The checkpoint is damaged or its training diverged; use another one.",
            )
        self.lowest, self.highest = min(self.lowest, lowest), max(self.highest, highest)
        before = (lowest, highest) if self.running is None else self.running
        self.running = (
            _MOMENTUM * before[0] + (1 - _MOMENTUM) * lowest,
            _MOMENTUM * before[1] + (1 - _MOMENTUM) * highest,
        )
        self.samples.append(flat[:: -(-flat.numel() // self.values_per_batch)].clone())

    def static_scale(
        self, grid: ActivationGrid, estimator: ActivationEstimator = "minmax"
    ) -> StaticScale:
        """Returns the scale and zero point of `grid` for the recorded values.

        minmax covers all values; running takes the means of the batches' extremes, in which later
        ones count more (arXiv 1712.05877); percentile drops the outermost (1 - PERCENTILE) share,
        half on each side; mse takes, of gradually shrunk ranges, the one with the least squared
        error.
        """
        assert self.running is not None, "nothing was observed"
        if estimator == "minmax":
            return scale_of_range(self.lowest, self.highest, grid)
        if estimator == "running":
            low, high = self.running
            return scale_of_range(min(low, 0.0), max(high, 0.0), grid)
        samples = torch.cat(self.samples)
        if estimator == "percentile":
            ordered = samples.sort().values
            cut = int(ordered.numel() * (1 - PERCENTILE) / 2)
            low, high = float(ordered[cut]), float(ordered[ordered.numel() - 1 - cut])
            return scale_of_range(min(low, 0.0), max(high, 0.0), grid)
        tried = [
            scale_of_range(self.lowest * step / _MSE_STEPS, self.highest * step / _MSE_STEPS, grid)
            for step in range(_MSE_STEPS, round(_MSE_STEPS * _MSE_SMALLEST), -1)
        ]
        return min(tried, key=lambda static: squared_error(samples, grid, static))


def squared_error(x: Tensor, grid: ActivationGrid, static: StaticScale) -> float:
    """Returns the sum over all values."""
    return float((round_activations(x, grid, static).values - x).square().sum(dtype=torch.float64))


def scale_of_range(lowest: float, highest: float, grid: ActivationGrid) -> StaticScale:
    """Returns the scale of a grid from `lowest` (at most 0) to `highest` (at least 0); an empty
    range has scale 1."""
    assert lowest <= 0 <= highest, (lowest, highest)
    low, high = grid.code_range
    if grid.symmetric:
        return StaticScale(scale=max(-lowest, highest) / high or 1.0)
    scale = (highest - lowest) / (high - low) or 1.0
    return StaticScale(scale=scale, zero=float(round(min(max(low - lowest / scale, low), high))))
