"""HQQ, half-quadratic quantization (Badri and Shaji, 2023, https://mobiusml.github.io/hqq_blog):
finds each group's grid from the weights alone and tolerates a few large errors
(docs/methods/hqq.md).

It minimizes sum |w - w'|^p, p < 1, in turns. An allowed error e' takes out the large part of each
error (the shrinkage of l_p, equation 5 of the paper). The grid is then fitted by least squares to
the rest, t = w - e'. With codes q, zero point z, scale s and w' = (q - z) s:

    u  = (w - w') / s0                              errors in steps of the group's first grid, s0
    e' = s0 sign(u) max(0, |u| - |u|^(p-1) / beta)  beta grows by kappa at each turn
    z  = mean(q - t / s)                            asymmetric grids
    s  = sum((q - z) t) / sum((q - z)^2)
    q  = round(w / s + z)

The authors keep s and store z as a float. Stored zero points are integers here, and rounding loses
the gain of such a z, so s is fitted too and z is rounded first. They measure errors in units of
the weights; with beta = 10 only errors above 0.17 are then tolerated, and layers of usual size
have none. Each group keeps the grid with the least mean |error|, as stored, of all that were
tried.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from paredown.compress.fit_grid import RangeEstimator, fit_grid
from paredown.compress.grid import Grid, code_range, grouped, storable_scales, to_weight
from paredown.compress.progressive_groups import nearest_steps
from paredown.compress.quantize.method import (
    ROUND_TO_NEAREST,
    LayerTarget,
    Moments,
    Quantized,
    check_grid,
)
from paredown.errors import ConfigError
from paredown.spec.weight import WeightSpec


@dataclass(frozen=True, kw_only=True)
class HQQ:
    """`norm` is p; `range` says how the first grid is found. The search ends early when an
    iteration helps no group. Raises ConfigError for options out of range."""

    needs_hessian: ClassVar[bool] = False
    without_inputs: ClassVar[str] = ROUND_TO_NEAREST
    holds_zeros: ClassVar[bool] = True

    norm: float = 0.7
    beta: float = 10.0
    kappa: float = 1.01
    num_iterations: int = 20
    range: RangeEstimator = "mse"

    def __post_init__(self) -> None:
        for name, value, fits, range_ in (
            ("norm", self.norm, 0 < self.norm < 1, "between 0 and 1"),
            ("beta", self.beta, 0 < self.beta < math.inf, "above 0"),
            ("kappa", self.kappa, 1 <= self.kappa < math.inf, "from 1"),
            ("num_iterations", self.num_iterations, self.num_iterations >= 0, "from 0"),
        ):
            if not fits:
                raise ConfigError(
                    f"HQQ's {name} is out of its range", seen=value, remedy=f"Give one {range_}."
                )

    def stored_spec(self, spec: WeightSpec) -> WeightSpec:
        return spec

    def check(self, spec: WeightSpec) -> None:
        check_grid("hqq", spec)

    def quantize(
        self, weight_OI: Tensor, target: LayerTarget, moments: Moments | None
    ) -> Quantized:
        weight_OI = target.held(weight_OI)
        values_OGC = grouped(weight_OI, target.spec.group_size)
        grid = self.fit(
            values_OGC, fit_grid(values_OGC, target.spec, target.scale_dtype, self.range)
        )
        codes_OGC = grid.codes(values_OGC)
        return Quantized(weight=to_weight(codes_OGC.reshape(weight_OI.shape), grid))

    def fit(self, values_OGC: Tensor, first: Grid) -> Grid:
        """Returns the best grid of each group, `first` included."""
        best, least_OG = first, mean_errors(values_OGC, first)
        grid, beta = first, self.beta
        for _ in range(self.num_iterations):
            codes_OGC = grid.codes(values_OGC)
            errors_OGC = values_OGC - grid.values(codes_OGC)
            forgiven_OGC = shrink(errors_OGC / first.scales_OG[..., None], self.norm, beta)
            wanted_OGC = values_OGC - forgiven_OGC * first.scales_OG[..., None]
            grid, beta = refit(grid, codes_OGC, wanted_OGC), beta * self.kappa
            errors_OG = mean_errors(values_OGC, grid)
            better_OG = errors_OG < least_OG
            if not bool(better_OG.any()):
                break
            least_OG = torch.where(better_OG, errors_OG, least_OG)
            best = replace(
                best,
                scales_OG=torch.where(better_OG, grid.scales_OG, best.scales_OG),
                zeros_OG=torch.where(better_OG, grid.zeros_OG, best.zeros_OG),
            )
        return best


def shrink(errors: Tensor, norm: float, beta: float) -> Tensor:
    """Applies the generalized soft threshold: zero for small errors, nearly the error for large
    ones."""
    return errors.sign() * (errors.abs() - errors.abs().pow(norm - 1) / beta).clamp(min=0)


def refit(grid: Grid, codes_OGC: Tensor, wanted_OGC: Tensor) -> Grid:
    """Fits the zero point, then the scale, by least squares to the wanted values. A group whose
    codes all equal its zero point keeps its scale."""
    zeros_OG = grid.zeros_OG
    if not grid.spec.symmetric:
        steps_OGC = wanted_OGC / grid.scales_OG[..., None]
        zeros_OG = (codes_OGC - steps_OGC).mean(-1).clamp(*code_range(grid.spec)).round()
    moved_OGC = codes_OGC - zeros_OG[..., None]
    products_OG = (moved_OGC * wanted_OGC).sum(-1)
    scales_OG = products_OG / moved_OGC.square().sum(-1)
    scales_OG = torch.where(products_OG > 0, scales_OG, grid.scales_OG)
    if grid.row_scales_O1 is not None:
        scales_OG = nearest_steps(scales_OG, zeros_OG, grid.row_scales_O1)
    else:
        scales_OG = storable_scales(scales_OG, grid.scale_dtype)
    return replace(grid, scales_OG=scales_OG, zeros_OG=zeros_OG)


def mean_errors(values_OGC: Tensor, grid: Grid) -> Tensor:
    """Returns the mean errors [O, G]."""
    return (grid.values(grid.codes(values_OGC)) - values_OGC).abs().mean(-1)
