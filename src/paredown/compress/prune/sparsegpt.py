"""SparseGPT (arXiv 2301.00774, docs/methods/sparsegpt.md): removes weights column by column, and
lets the remaining columns compensate for each (compress/column_solver.py).

Shapes: O output rows, I input columns, C columns of a stretch. When the stretch's turn comes, the
weights with the smallest losses go (algorithm 1 of the paper):

    v_i^2 / (2 [H_F^-1]_ii) = v_i^2 L_ii^2 / 2        F: column i and all that settle after it

v are the values that the columns have by then. A share is taken from stretches of `block_columns`
over all rows together; for n of m, each row keeps the best n of every m neighbours.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from paredown.compress.column_solver import ColumnSolver
from paredown.compress.damping import check_damp
from paredown.compress.hessian_factor import (
    HessianFactor,
    NoFactor,
    factor_hessian,
)
from paredown.compress.prune.column_mask import (
    ChosenMask,
    ColumnMask,
    FixedMask,
    check_mask,
)
from paredown.compress.prune.loss_order import loss_order, natural_order
from paredown.compress.prune.magnitude import by_magnitude, instead_of
from paredown.compress.prune.method import Pruned, Seen
from paredown.compress.prune.pattern import NOfM, Pattern
from paredown.compress.quantize.method import Moments
from paredown.errors import ConfigError

# natural   from left to right, as the paper
# loss      ROSE (arXiv 2603.05878): what will lose most comes first (loss_order.py)
ColumnOrder = Literal["natural", "loss"]


@dataclass(frozen=True, kw_only=True)
class SparseGPT:
    """`block_columns` are the columns whose weights compete for a share. `damp` times the mean of
    H's diagonal is added to the diagonal.

    Raises ConfigError for a `damp` outside of 0 to 1 and for blocks without columns.
    """

    needs_hessian: ClassVar[bool] = True
    needs_gradients: ClassVar[bool] = False

    block_columns: int = 128
    damp: float = 0.01
    order: ColumnOrder = "natural"

    def __post_init__(self) -> None:
        check_damp("SparseGPT", self.damp)
        if self.block_columns < 1:
            raise ConfigError(
                "SparseGPT chooses among the weights of at least one column",
                seen=f"block_columns {self.block_columns}",
                remedy="Leave it out for the paper's 128.",
            )

    def check(self, pattern: Pattern) -> None:
        """Accepts every pattern."""

    def prune(self, weight_OI: Tensor, pattern: Pattern, seen: Seen) -> Pruned:
        """Prunes a weight, computing in its dtype. Columns whose inputs were all 0 get weight 0.
        Without any input, or if damping does not help to factor H, it prunes by magnitude and says
        so in the notes.

        Raises CheckpointError if weights or H are not finite, ConfigError for columns that the
        pattern does not fit.
        """
        assert seen.moments is not None
        if isinstance(pattern, NOfM):
            pattern.check_columns(weight_OI.shape[1])
        factor = self.factor(weight_OI, pattern, seen.moments)
        if isinstance(factor, NoFactor):
            return by_magnitude(weight_OI, pattern, instead_of(factor.why))
        return solve_zeros(weight_OI, factor, self.mask(weight_OI, pattern, factor))

    def impose(self, weight_OI: Tensor, mask_OI: Tensor, moments: Moments) -> Pruned:
        """Makes the zeros of a mask (true stays), and lets the columns after each compensate for
        it. Raises ConfigError for a mask of another shape or kind than the weight's."""
        check_mask(mask_OI, weight_OI)
        factor = factor_hessian(weight_OI, moments, self.damp, natural_order)
        if isinstance(factor, NoFactor):
            values_OI = weight_OI.masked_fill(~mask_OI, 0)
            note = f"no weight compensates: {factor.why}"
            return Pruned(values_OI=values_OI, mask_OI=mask_OI, notes=(note,))
        return solve_zeros(weight_OI, factor, FixedMask(mask_OI, factor.order_I))

    def factor(
        self, weight_OI: Tensor, pattern: Pattern, moments: Moments
    ) -> HessianFactor | NoFactor:
        """Factors H with the columns in the order in which they are pruned."""

        def order(diagonal_I: Tensor) -> Tensor:
            if self.order == "natural":
                return natural_order(diagonal_I)
            return loss_order(weight_OI, diagonal_I, pattern, self.block_columns)

        return factor_hessian(weight_OI, moments, self.damp, order)

    def mask(self, weight_OI: Tensor, pattern: Pattern, factor: HessianFactor) -> ChosenMask:
        """Returns a mask that will be chosen while the columns settle."""
        return ChosenMask(pattern, factor.pivots_I, weight_OI.shape[0], self.block_columns)


class Zeroing:
    """Sets columns to 0 where a mask is false, and leaves the others."""

    def __init__(self, mask: ColumnMask, dtype: torch.dtype) -> None:
        self._mask_IO = mask.mask_IO
        self.values_IO = torch.empty_like(mask.mask_IO, dtype=dtype)
        self.stretch = mask.stretch
        self.begin = mask.choose

    def settle(self, column: int, latest_O: Tensor) -> Tensor:
        self.values_IO[column] = latest_O.masked_fill(~self._mask_IO[column], 0)
        return self.values_IO[column]


def solve_zeros(weight_OI: Tensor, factor: HessianFactor, mask: ColumnMask) -> Pruned:
    """Makes the zeros of a mask while the columns settle."""
    zeroing = Zeroing(mask, weight_OI.dtype)
    loss = ColumnSolver(factor.without_dead(weight_OI), factor, zeroing).solve()
    return Pruned(
        values_OI=factor.restored(zeroing.values_IO),
        mask_OI=factor.restored(mask.mask_IO),
        notes=factor.notes,
        loss=loss,
    )
