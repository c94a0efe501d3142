"""Round to nearest (docs/methods/round_to_nearest.md): rounds every weight by itself, on a grid
found from the weights alone."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from paredown.compress.fit_grid import RangeEstimator, fit_grid, fit_shared_grid
from paredown.compress.grid import grouped, to_weight
from paredown.compress.quantize.method import (
    ROUND_TO_NEAREST,
    LayerTarget,
    Moments,
    Quantized,
    check_grid,
)
from paredown.formats.quantize import quantize
from paredown.spec.weight import WeightSpec


@dataclass(frozen=True, kw_only=True)
class RTN:
    """`range` says how the grid's range is found. `per_tensor` gives all rows the same scale,
    stored as rows that happen to share it (SmoothQuant's O1 to O3)."""

    needs_hessian: ClassVar[bool] = False
    without_inputs: ClassVar[str] = ROUND_TO_NEAREST
    holds_zeros: ClassVar[bool] = True

    range: RangeEstimator = "minmax"
    per_tensor: bool = False

    def stored_spec(self, spec: WeightSpec) -> WeightSpec:
        return spec

    def check(self, spec: WeightSpec) -> None:
        check_grid("rtn", spec)

    def quantize(
        self, weight_OI: Tensor, target: LayerTarget, moments: Moments | None
    ) -> Quantized:
        spec, weight_OI = target.spec, target.held(weight_OI)
        if self.range == "minmax" and not self.per_tensor and not spec.integer_steps:
            # The same codes, one stretch of rows at a time.
            return Quantized(weight=quantize(weight_OI.float().numpy(), spec, target.scale_dtype))
        values_OGC = grouped(weight_OI, spec.group_size)
        if target.grid is not None:
            grid = target.grid
        elif self.per_tensor:
            grid = fit_shared_grid(weight_OI, spec, target.scale_dtype, None, self.range)
        else:
            grid = fit_grid(values_OGC, spec, target.scale_dtype, self.range)
        codes_OGC = grid.codes(values_OGC)
        return Quantized(weight=to_weight(codes_OGC.reshape(weight_OI.shape), grid))
