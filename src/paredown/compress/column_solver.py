"""Settles a weight column by column, and lets the remaining columns compensate for what each one
loses: the loop that GPTQ (arXiv 2210.17323) and SparseGPT (arXiv 2301.00774) share.

Shapes: O output rows, I input columns, C columns of a stretch. Turning row w of the weight into q
costs 1/2 d H d^T, with d = w - q and H from the inputs (`Moments`). After each column the
remaining ones take the values that best compensate for all d so far.

The papers read these values from a Cholesky factor of H^-1. The factor of H itself gives them too,
at a quarter of the work and without inverting. Order the columns so that the first to be settled
stands last, and let H = L L^T with L lower triangular. With M = L / diag(L), column i is found at

    v_i = w_i + sum over j > i of d_j M_ji                                                (1)

and 1/2 d H d^T = 1/2 sum of (v_i - q_i)^2 L_ii^2. Sums over far columns are matrix products. A
stretch of columns is split in two, its later half is settled, and (1) is updated for the earlier
half at once; this repeats down to a few columns.
"""

from typing import Protocol

import torch
from torch import Tensor

from paredown.compress.hessian_factor import HessianFactor

# The columns that are settled one by one, without matrix products between them. From 8 to 64 the
# speed is the same.
_FEW_COLUMNS = 32


class Settling(Protocol):
    """Decides which values the columns take: on a grid, or zero.

    `stretch` columns are looked at together (`begin`) before the first of them settles; None if
    each is decided alone. Where it does not divide the columns, the last stretch is shorter.
    """

    @property
    def stretch(self) -> int | None: ...

    def begin(self, values_CO: Tensor, first: int, last: int) -> None:
        """Looks at the values that the columns [`first`, `last`) would keep if no more settled."""
        ...

    def settle(self, column: int, latest_O: Tensor) -> Tensor:
        """Returns the values that a column takes, given v of equation (1), and notes them."""
        ...


class ColumnSolver:
    """A weight's columns in progress, stored as rows in the order of `factor`: column i of
    equation (1) is row i here. `change_IO` holds w, or d for settled columns. `latest_IO` holds v
    as far as known, or v - q for settled columns."""

    def __init__(self, weight_OI: Tensor, factor: HessianFactor, settling: Settling) -> None:
        self._factor = factor
        self._settling = settling
        self._change_IO = weight_OI.T[factor.order_I]
        self._latest_IO = self._change_IO.clone()
        self._num_columns = weight_OI.shape[1]
        self._whole = settling.stretch or self._num_columns

    def solve(self) -> float:
        """Settles all columns. Returns 1/2 tr(d H d^T) with the undamped H: the mean of
        |(W - Q) x|^2 over the inputs x."""
        self._solve(0, self._num_columns)
        left_I = torch.linalg.vector_norm(self._latest_IO, dim=1).double().square()
        damped = float(left_I @ self._factor.pivots_I.double())
        added = self._factor.added * float(torch.linalg.vector_norm(self._change_IO)) ** 2
        return max(0.0, (damped - added) / 2)

    def _solve(self, first: int, last: int) -> None:
        """Settles the columns from `last` - 1 down to `first`, one or more whole stretches. Their
        `_latest_IO` must include all columns from `last` on."""
        num_wholes = -(-(last - first) // self._whole)
        if num_wholes > 1:
            middle = last - (num_wholes + 1) // 2 * self._whole
            self._solve(middle, last)
            self._update(first, middle, last)
            self._solve(first, middle)
            return
        if self._settling.stretch is not None:
            self._settling.begin(self._current(first, last), first, last)
        self._halve(first, last)

    def _halve(self, first: int, last: int) -> None:
        """Does the same within a stretch that has begun."""
        if last - first <= _FEW_COLUMNS:
            self._settle(first, last)
            return
        middle = first + (last - first) // 2
        self._halve(middle, last)
        self._update(first, middle, last)
        self._halve(first, middle)

    def _update(self, first: int, middle: int, last: int) -> None:
        """Includes the columns [`middle`, `last`) in `_latest_IO` of [`first`, `middle`)."""
        far_II = self._factor.unit_II[middle:last, first:middle]
        self._latest_IO[first:middle].addmm_(far_II.T, self._change_IO[middle:last])

    def _settle(self, first: int, last: int) -> None:
        for i in range(last - 1, first - 1, -1):
            latest_O = self._latest_IO[i]
            if i + 1 < last:
                near_I = self._factor.unit_II[i + 1 : last, i]
                latest_O.addmv_(self._change_IO[i + 1 : last].T, near_I)
            values_O = self._settling.settle(i, latest_O)
            self._change_IO[i] -= values_O
            latest_O -= values_O

    def _current(self, first: int, last: int) -> Tensor:
        """Returns the values that the columns [`first`, `last`) would have if no more settled.
        `_latest_IO` has each one's compensation for the columns from `last` on; the triangular
        solve distributes it over the stretch."""
        weight_CO = self._change_IO[first:last]
        near_CC = self._factor.unit_II[first:last, first:last]
        asked_CO = self._latest_IO[first:last] - weight_CO
        shared_CO: Tensor = torch.linalg.solve_triangular(
            near_CC.T, asked_CO, upper=True, unitriangular=True
        )
        return weight_CO + shared_CO
