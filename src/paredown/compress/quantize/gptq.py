"""GPTQ (arXiv 2210.17323, docs/methods/gptq.md): rounds columns one after another, and lets the
remaining columns compensate for the error of each (compress/column_solver.py).

Shapes: O output rows, I input columns, G groups of C columns.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from paredown.compress.column_solver import ColumnSolver
from paredown.compress.damping import check_damp
from paredown.compress.fit_grid import RangeEstimator, fit_grid
from paredown.compress.grid import Grid, decode, encode, grouped, to_weight
from paredown.compress.hessian_factor import HessianFactor, NoFactor, factor_hessian
from paredown.compress.quantize.method import (
    ROUND_TO_NEAREST,
    LayerTarget,
    Moments,
    Quantized,
    check_grid,
)
from paredown.compress.quantize.rtn import RTN
from paredown.formats.grid_weight import GridWeight
from paredown.formats.integer import group_columns
from paredown.spec.weight import WeightSpec


@dataclass(frozen=True, kw_only=True)
class GPTQ:
    """The options of GPTQ.

    `act_order` rounds the columns with the largest inputs first. `static_groups` finds the groups'
    grids before anything is rounded. Otherwise a group's grid is found at its turn, from the
    current values of its columns. `act_order` then keeps groups together: the group with the
    largest input comes first, and within it the column with the largest. `damp` times the mean of
    H's diagonal is added to the diagonal. `range` says how a grid's range is found.

    Raises ConfigError for a `damp` outside of 0 to 1.
    """

    needs_hessian: ClassVar[bool] = True
    without_inputs: ClassVar[str] = ROUND_TO_NEAREST
    holds_zeros: ClassVar[bool] = True

    act_order: bool = True
    static_groups: bool = True
    damp: float = 0.01
    range: RangeEstimator = "mse"

    def __post_init__(self) -> None:
        check_damp("GPTQ", self.damp)

    def stored_spec(self, spec: WeightSpec) -> WeightSpec:
        return spec

    def check(self, spec: WeightSpec) -> None:
        check_grid("gptq", spec)

    def quantize(
        self, weight_OI: Tensor, target: LayerTarget, moments: Moments | None
    ) -> Quantized:
        """Quantizes a weight, computing in its dtype. Columns whose inputs were all 0 get weight
        0. Zeros of the target's mask count as errors, which the other columns compensate for.
        Without any input, or if damping does not help to factor H, it rounds to nearest and says
        so in the notes.

        Raises CheckpointError if weights or H are not finite, UnsupportedError if groups do not
        divide the columns.
        """
        assert moments is not None
        group_size = group_columns(target.spec, weight_OI.shape[1])
        factor = factor_hessian(
            weight_OI, moments, self.damp, lambda diagonal_I: self.order(diagonal_I, group_size)
        )
        if isinstance(factor, NoFactor):
            return self._round_to_nearest(weight_OI, target, factor.why)
        weight_OI = factor.without_dead(weight_OI)
        static = self.static_groups or group_size == weight_OI.shape[1]
        grid = target.grid or fit_grid(
            grouped(target.held(weight_OI), target.spec.group_size),
            target.spec,
            target.scale_dtype,
            self.range,
        )
        mask_OI = target.mask_OI
        mask_IO = None if mask_OI is None else mask_OI.T[factor.order_I]
        rounding = Rounding(grid, factor, None if static else self.range, mask_IO)
        loss = ColumnSolver(weight_OI, factor, rounding).solve()
        return Quantized(weight=rounding.weight(), notes=factor.notes, loss=loss)

    def order(self, diagonal_I: Tensor, group_size: int) -> Tensor:
        """Returns the columns in an order in which the first to be rounded is last."""
        if not self.act_order:
            return torch.arange(diagonal_I.shape[0] - 1, -1, -1)
        if self.static_groups:
            return diagonal_I.argsort(stable=True)
        diagonal_GC = diagonal_I.reshape(-1, group_size)
        within_GC = diagonal_GC.argsort(dim=1, stable=True)
        groups_G = diagonal_GC.amax(1).argsort(stable=True)
        starts_G1 = torch.arange(0, diagonal_I.shape[0], group_size)[:, None]
        return (within_GC + starts_G1)[groups_G].flatten()

    def _round_to_nearest(self, weight_OI: Tensor, target: LayerTarget, why: str) -> Quantized:
        rounded = RTN(range=self.range).quantize(weight_OI, target, None)
        return Quantized(weight=rounded.weight, notes=(f"rounded to nearest instead: {why}",))


class Rounding:
    """Rounds columns to a grid; `mask_IO`, in the order of `factor`, is false where a weight
    becomes 0 instead. With `refit` a group's grid is found when the group begins."""

    def __init__(
        self,
        grid: Grid,
        factor: HessianFactor,
        refit: RangeEstimator | None = None,
        mask_IO: Tensor | None = None,
    ) -> None:
        self._grid = grid
        self._factor = factor
        self._refit = refit
        self._mask_IO = mask_IO
        num_columns, num_rows = factor.order_I.shape[0], grid.scales_OG.shape[0]
        self._codes_IO = grid.scales_OG.new_empty(num_columns, num_rows)
        self._scales_GO = grid.scales_OG.T.contiguous()
        self._zeros_GO = grid.zeros_OG.T.contiguous()
        group_size = num_columns // self._scales_GO.shape[0]
        self._groups: list[int] = (factor.order_I // group_size).tolist()
        self.stretch = None if refit is None else group_size

    def begin(self, values_CO: Tensor, first: int, last: int) -> None:
        assert self._refit is not None
        if self._mask_IO is not None:
            values_CO = values_CO.masked_fill(~self._mask_IO[first:last], 0)
        grid = fit_grid(
            values_CO.T[:, None],
            self._grid.spec,
            self._grid.scale_dtype,
            self._refit,
            self._grid.row_scales_O1,
        )
        self._scales_GO[self._groups[first]] = grid.scales_OG[:, 0]
        self._zeros_GO[self._groups[first]] = grid.zeros_OG[:, 0]

    def settle(self, column: int, latest_O: Tensor) -> Tensor:
        group = self._groups[column]
        scales_O, zeros_O = self._scales_GO[group], self._zeros_GO[group]
        codes_O = encode(latest_O, scales_O, zeros_O, self._grid.spec)
        if self._mask_IO is not None:
            # A zero point stands for exactly 0.
            codes_O = torch.where(self._mask_IO[column], codes_O, zeros_O)
        self._codes_IO[column] = codes_O
        return decode(codes_O, scales_O, zeros_O)

    def weight(self) -> GridWeight:
        grid = Grid(
            spec=self._grid.spec,
            scale_dtype=self._grid.scale_dtype,
            scales_OG=self._scales_GO.T.contiguous(),
            zeros_OG=self._zeros_GO.T.contiguous(),
        )
        return to_weight(self._factor.restored(self._codes_IO), grid)
