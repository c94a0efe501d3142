"""GPTQ (arXiv 2210.17323, docs/methods/gptq.md): rounds columns one after another, and lets the
remaining columns compensate for the error of each.

Shapes: O output rows, I input columns, G groups of C columns. Rounding row w of the weight costs
1/2 d H d^T, with d = w - q and H from the inputs (`Moments`). After each column the remaining ones
take the values that best compensate for all d so far.

The paper reads these values from a Cholesky factor of H^-1. The factor of H itself gives them too,
at a quarter of the work and without inverting. Order the columns so that the first to be rounded
stands last, and let H = L L^T with L lower triangular. With M = L / diag(L), column i is found at

    v_i = w_i + sum over j > i of d_j M_ji                                                (1)

and 1/2 d H d^T = 1/2 sum of (v_i - q_i)^2 L_ii^2. Sums over far columns are matrix products. A
stretch of columns is split in two, its later half is rounded, and (1) is updated for the earlier
half at once; this repeats down to a few columns.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from paredown.compress.fit_grid import RangeEstimator, fit_grid
from paredown.compress.grid import Grid, decode, encode, grouped, to_weight
from paredown.compress.quantize.method import (
    ROUND_TO_NEAREST,
    LayerTarget,
    Moments,
    Quantized,
    check_grid,
)
from paredown.compress.quantize.rtn import RTN
from paredown.errors import CheckpointError, ConfigError
from paredown.formats.grid_weight import GridWeight
from paredown.formats.integer import group_columns
from paredown.spec.weight import WeightSpec

# A Hessian that cannot be factored gets this many times more damping each time, up to its mean
# diagonal.
_DAMP_GROWTH = 10.0
_LEAST_GROWN_DAMP = 0.01
_MOST_DAMP = 1.0
# The columns that are rounded one by one, without matrix products between them. From 8 to 64 the
# speed is the same.
_FEW_COLUMNS = 32


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

    act_order: bool = True
    static_groups: bool = True
    damp: float = 0.01
    range: RangeEstimator = "mse"

    def __post_init__(self) -> None:
        if not 0 <= self.damp <= _MOST_DAMP:
            raise ConfigError(
                "GPTQ's damp is a share of the mean diagonal of the Hessian",
                seen=self.damp,
                remedy=f"Choose a number from 0 to {_MOST_DAMP:g}; 0.01 is usual.",
            )

    def stored_spec(self, spec: WeightSpec) -> WeightSpec:
        return spec

    def check(self, spec: WeightSpec) -> None:
        check_grid("gptq", spec)

    def quantize(
        self, weight_OI: Tensor, target: LayerTarget, moments: Moments | None
    ) -> Quantized:
        """Quantizes a weight, computing in its dtype. Columns whose inputs were all 0 get weight
        0. Without any input, or if damping does not help to factor H, it rounds to nearest and
        says so in the notes.

        Raises CheckpointError if weights or H are not finite, UnsupportedError if groups do not
        divide the columns.
        """
        assert moments is not None
        _check_finite(weight_OI, "weights")
        _check_finite(moments.hessian_II, "sums of squares of the inputs")
        group_size = group_columns(target.spec, weight_OI.shape[1])
        diagonal_I = moments.hessian_II.diagonal().to(weight_OI.dtype)
        dead_I = diagonal_I == 0
        if bool(dead_I.all()):
            return self._round_to_nearest(weight_OI, target, "no input but zeros was seen")
        order_I = self._reversed_order(diagonal_I, group_size)
        factor = _factor(moments.hessian_II.to(weight_OI.dtype), order_I, self.damp)
        if factor is None:
            return self._round_to_nearest(
                weight_OI, target, f"the Hessian is singular even with a damp of {_MOST_DAMP:g}"
            )
        notes = []
        if factor.damp != self.damp:
            notes.append(f"damp grew from {self.damp:g} to {factor.damp:g}")
        if bool(dead_I.any()):
            notes.append(f"{int(dead_I.sum())} columns with no input but zeros became 0")
            weight_OI = weight_OI.masked_fill(dead_I, 0)
        static = self.static_groups or group_size == weight_OI.shape[1]
        grid = target.grid or fit_grid(
            grouped(weight_OI, target.spec.group_size), target.spec, target.scale_dtype, self.range
        )
        columns = _Columns(weight_OI, order_I, factor, grid, None if static else self.range)
        columns.solve(0, weight_OI.shape[1])
        return Quantized(weight=columns.weight(), notes=tuple(notes), loss=columns.loss())

    def _reversed_order(self, diagonal_I: Tensor, group_size: int) -> Tensor:
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


@dataclass(frozen=True, kw_only=True)
class _Factor:
    """The factor of the damped H in the reversed order: M with a diagonal of 1, and the squares of
    diag(L). `added` is the amount on the diagonal beyond H."""

    unit_II: Tensor
    pivots_I: Tensor
    damp: float
    added: float


def _factor(hessian_II: Tensor, order_I: Tensor, damp: float) -> _Factor | None:
    """Returns the factor of H with as little damping as it needs; None if even the most damping
    does not help."""
    diagonal_I = hessian_II.diagonal()
    mean = diagonal_I[diagonal_I != 0].mean().item()
    while damp <= _MOST_DAMP:
        ordered_II = hessian_II[order_I[:, None], order_I]
        ordered_I = ordered_II.diagonal()
        ordered_I.masked_fill_(ordered_I == 0, mean).add_(damp * mean)
        # LAPACK uses the transposed layout, in which the factor replaces the matrix in place.
        lower_II = ordered_II.mT
        info = torch.empty((), dtype=torch.int32)
        torch.linalg.cholesky_ex(lower_II, out=(lower_II, info))
        pivots_I = lower_II.diagonal().clone()
        if info.item() == 0 and bool((pivots_I > 0).all() and pivots_I.isfinite().all()):
            unit_II = lower_II.div_(pivots_I)
            return _Factor(
                unit_II=unit_II, pivots_I=pivots_I.square(), damp=damp, added=damp * mean
            )
        damp = max(damp * _DAMP_GROWTH, _LEAST_GROWN_DAMP)
    return None


class _Columns:
    """A weight's columns in progress, stored as rows in the reversed order: column i of equation
    (1) is row i here. `change_IO` holds w, or d for rounded columns. `latest_IO` holds v as far as
    known, or v - q for rounded columns."""

    def __init__(
        self,
        weight_OI: Tensor,
        order_I: Tensor,
        factor: _Factor,
        grid: Grid,
        refit: RangeEstimator | None,
    ) -> None:
        self.factor = factor
        self.refit = refit
        self.spec: WeightSpec = grid.spec
        self.scale_dtype = grid.scale_dtype
        self.row_scales_O1 = grid.row_scales_O1
        self.order_I = order_I
        self.change_IO = weight_OI.T[order_I]
        self.latest_IO = self.change_IO.clone()
        self.codes_IO = torch.empty_like(self.change_IO)
        self.scales_GO = grid.scales_OG.T.contiguous()
        self.zeros_GO = grid.zeros_OG.T.contiguous()
        num_columns = order_I.shape[0]
        group_size = num_columns // self.scales_GO.shape[0]
        self.groups: list[int] = (order_I // group_size).tolist()
        # Stretches of this size are never split: their grid is found when they begin.
        self.whole = num_columns if refit is None else group_size

    def solve(self, first: int, last: int) -> None:
        """Rounds the columns from `last` - 1 down to `first`. Their `latest_IO` must include all
        columns from `last` on."""
        size = last - first
        if self.refit is not None and size == self.whole:
            self.fit(first, last)
        if size <= min(_FEW_COLUMNS, self.whole):
            self.round_columns(first, last)
            return
        half = size // 2 if size <= self.whole else size // self.whole // 2 * self.whole
        middle = first + half
        self.solve(middle, last)
        far_II = self.factor.unit_II[middle:last, first:middle]
        self.latest_IO[first:middle].addmm_(far_II.T, self.change_IO[middle:last])
        self.solve(first, middle)

    def round_columns(self, first: int, last: int) -> None:
        for i in range(last - 1, first - 1, -1):
            latest_O = self.latest_IO[i]
            if i + 1 < last:
                near_I = self.factor.unit_II[i + 1 : last, i]
                latest_O.addmv_(self.change_IO[i + 1 : last].T, near_I)
            scales_O, zeros_O = self.scales_GO[self.groups[i]], self.zeros_GO[self.groups[i]]
            codes_O = encode(latest_O, scales_O, zeros_O, self.spec)
            values_O = decode(codes_O, scales_O, zeros_O)
            self.codes_IO[i] = codes_O
            self.change_IO[i] -= values_O
            latest_O -= values_O

    def fit(self, first: int, last: int) -> None:
        """Fits the grid of the group in [`first`, `last`), to the values that its columns would
        have if no more were rounded. `latest_IO` has each column's compensation for the columns
        before the group. The triangular solve distributes it over the group's columns."""
        assert self.refit is not None
        weight_CO = self.change_IO[first:last]
        near_CC = self.factor.unit_II[first:last, first:last]
        asked_CO = self.latest_IO[first:last] - weight_CO
        shared_CO = torch.linalg.solve_triangular(
            near_CC.T, asked_CO, upper=True, unitriangular=True
        )
        values_OC = (weight_CO + shared_CO).T
        grid = fit_grid(
            values_OC[:, None], self.spec, self.scale_dtype, self.refit, self.row_scales_O1
        )
        self.scales_GO[self.groups[first]] = grid.scales_OG[:, 0]
        self.zeros_GO[self.groups[first]] = grid.zeros_OG[:, 0]

    def weight(self) -> GridWeight:
        codes_OI = torch.empty_like(self.codes_IO.T, memory_format=torch.contiguous_format)
        codes_OI[:, self.order_I] = self.codes_IO.T
        grid = Grid(
            spec=self.spec,
            scale_dtype=self.scale_dtype,
            scales_OG=self.scales_GO.T.contiguous(),
            zeros_OG=self.zeros_GO.T.contiguous(),
        )
        return to_weight(codes_OI, grid)

    def loss(self) -> float:
        """Returns 1/2 tr(d H d^T) with the undamped H: the mean of |(W - Q) x|^2 over the inputs
        x."""
        left_I = torch.linalg.vector_norm(self.latest_IO, dim=1).double().square()
        damped = float(left_I @ self.factor.pivots_I.double())
        added = self.factor.added * float(torch.linalg.vector_norm(self.change_IO)) ** 2
        return max(0.0, (damped - added) / 2)


def _check_finite(values: Tensor, name: str) -> None:
    lowest, highest = values.aminmax()
    if not bool(torch.isfinite(lowest) and torch.isfinite(highest)):
        raise CheckpointError(
            f"the {name} of a linear layer are not finite numbers",
            seen=f"values from {lowest.item()} to {highest.item()}",
            remedy="The checkpoint is damaged or its training diverged; use another one.",
        )
