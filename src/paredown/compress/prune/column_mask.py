"""Masks of a weight whose columns settle one after another (compress/column_solver.py): fixed, or
chosen a stretch of columns at a time.

Shapes: O output rows, I input columns, C columns of a stretch, G groups of M neighbours, N of
which stay. Rows of a mask are columns of the weight, in an order in which the first to settle
stands last.
"""

from typing import Protocol

import torch
from torch import Tensor

from paredown.compress.prune.pattern import NOfM, Pattern
from paredown.errors import ConfigError


class ColumnMask(Protocol):
    """`mask_IO` is false for weights that become 0. `stretch` columns are chosen among together,
    None if nothing is left to choose."""

    mask_IO: Tensor

    @property
    def stretch(self) -> int | None: ...

    def choose(self, values_CO: Tensor, first: int, last: int) -> None:
        """Chooses among the weights of the columns [`first`, `last`)."""
        ...


class FixedMask:
    """Has every choice made before the first column settles."""

    def __init__(self, mask_OI: Tensor, order_I: Tensor) -> None:
        self.mask_IO = mask_OI.T[order_I]
        self.stretch = None

    def choose(self, values_CO: Tensor, first: int, last: int) -> None:
        raise AssertionError("a fixed mask leaves nothing to choose")


class ChosenMask:
    """Removes the weights with the smallest losses, v_i^2 times the pivot of their column. A share
    is taken from the stretches of `block_columns` over all rows together, and exact over any
    stretches that begin with the first to settle. For n of m, each row keeps the best n of every m
    neighbours."""

    def __init__(
        self, pattern: Pattern, pivots_I: Tensor, num_rows: int, block_columns: int
    ) -> None:
        self._pattern = pattern
        self._pivots_I = pivots_I
        self._num_removed = 0
        self.mask_IO = torch.ones(pivots_I.shape[0], num_rows, dtype=torch.bool)
        self.stretch = pattern.m if isinstance(pattern, NOfM) else block_columns

    def choose(self, values_CO: Tensor, first: int, last: int) -> None:
        losses_CO = values_CO.square().mul_(self._pivots_I[first:last, None])
        if isinstance(self._pattern, NOfM):
            self.mask_IO[first:last] = _best_of_neighbours(losses_CO, self._pattern)
            return
        num_seen = self.mask_IO[first:].numel()
        num = self._pattern.num_removed(num_seen) - self._num_removed
        self._num_removed += num
        if num:
            self.mask_IO[first:last] = _all_but_smallest(losses_CO, num)


def check_mask(mask_OI: Tensor, weight_OI: Tensor) -> None:
    """Raises ConfigError for a mask that does not have one truth value for each weight."""
    if mask_OI.shape != weight_OI.shape or mask_OI.dtype != torch.bool:
        raise ConfigError(
            "a mask does not fit its weight",
            seen=f"{mask_OI.dtype} {tuple(mask_OI.shape)} for {tuple(weight_OI.shape)}",
            remedy="Give one bool for each weight, rows by columns: true stays.",
        )


def _best_of_neighbours(losses_CO: Tensor, pattern: NOfM) -> Tensor:
    losses_GMO = losses_CO.reshape(-1, pattern.m, losses_CO.shape[1])
    best_GNO = losses_GMO.topk(pattern.n, dim=1, sorted=False).indices
    mask_GMO = torch.zeros_like(losses_GMO, dtype=torch.bool).scatter_(1, best_GNO, True)
    return mask_GMO.flatten(0, 1)


def _all_but_smallest(losses_CO: Tensor, num: int) -> Tensor:
    """Returns the mask without the `num` smallest losses, exactly."""
    largest = losses_CO.flatten().kthvalue(num).values
    mask_CO = losses_CO > largest
    num_spared = mask_CO.numel() - num - int(mask_CO.sum())
    if num_spared:
        columns, rows = (losses_CO == largest).nonzero(as_tuple=True)
        mask_CO[columns[:num_spared], rows[:num_spared]] = True
    return mask_CO
