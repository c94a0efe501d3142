"""Optimal Brain Surgeon (Hassibi and Stork, 1992), on the rows of one linear layer.

Shapes: O output rows, R rows at once, I input columns, G groups. The loss of changing a row w by d
is 1/2 d H d^T. Removing column q, with the best change of all others, costs

    w_q^2 / (2 [H^-1]_qq),   at   d = -w_q / [H^-1]_qq * [H^-1]_q

The cheapest column of each row goes, the row changes by d, and H^-1 becomes that of the columns
that are left; this repeats. Every row needs an inverse of its own, so only small layers are pruned
in bearable time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from paredown.compress.damping import check_damp, grown_damp
from paredown.compress.prune.damped_inverse import DampedInverse, damped_inverse
from paredown.compress.prune.layer_loss import layer_loss
from paredown.compress.prune.magnitude import by_magnitude, instead_of
from paredown.compress.prune.mask import removed_by_row
from paredown.compress.prune.method import Pruned, Seen
from paredown.compress.prune.pattern import NOfM, Pattern
from paredown.errors import UnsupportedError, naming

# The most numbers of inverses that one layer may change. They take about two minutes on one core
# (a layer of 576 x 576 of SmolLM2-135M at 50 % changes 5.5e10).
MOST_CHANGES = 1e11
# The numbers of inverses in memory at once.
_VALUES = 1 << 24


@dataclass(frozen=True, kw_only=True)
class OBS:
    """OBS; `damp` times the mean of H's diagonal is added to the diagonal. Raises ConfigError for a
    `damp` outside of 0 to 1."""

    needs_hessian: ClassVar[bool] = True
    needs_gradients: ClassVar[bool] = False

    damp: float = 0.01

    def __post_init__(self) -> None:
        check_damp("OBS", self.damp)

    def check(self, pattern: Pattern) -> None:
        """Accepts every pattern."""

    def check_modules(self, shapes: Mapping[str, tuple[int, int]], pattern: Pattern) -> None:
        """Raises UnsupportedError, with the module's name, for one that would take too long."""
        for name, shape in shapes.items():
            with naming(name):
                _check_size(shape, round(pattern.share * shape[0] * shape[1]))

    def prune(self, weight_OI: Tensor, pattern: Pattern, seen: Seen) -> Pruned:
        """Prunes a weight, computing in float64. Without any input but zeros it prunes by magnitude
        and says so in the notes.

        Raises UnsupportedError for a layer that would take too long, ConfigError for columns that
        the pattern does not fit.
        """
        assert seen.moments is not None
        hessian_II = seen.moments.hessian_II
        quotas_OG = _quotas(weight_OI, pattern)
        _check_size((weight_OI.shape[0], weight_OI.shape[1]), int(quotas_OG.sum()))
        inverse = damped_inverse(hessian_II, self.damp, torch.float64)
        if inverse is None:
            return by_magnitude(weight_OI, pattern, instead_of("the inputs give no inverse"))
        values_OI = torch.empty_like(weight_OI)
        mask_OI = torch.empty_like(weight_OI, dtype=torch.bool)
        num_columns = weight_OI.shape[1]
        size = max(1, _VALUES // num_columns**2)
        for first in range(0, weight_OI.shape[0], size):
            rows = slice(first, first + size)
            surgery = _Surgery(weight_OI[rows].double(), quotas_OG[rows], inverse)
            surgery.run()
            values_OI[rows] = surgery.values_RI.to(weight_OI.dtype)
            mask_OI[rows] = surgery.mask_RI
        grown = () if inverse.damp == self.damp else (grown_damp(self.damp, inverse.damp),)
        loss = layer_loss(weight_OI - values_OI, hessian_II)
        return Pruned(values_OI=values_OI, mask_OI=mask_OI, notes=grown, loss=loss)


def _quotas(weight_OI: Tensor, pattern: Pattern) -> Tensor:
    """Returns how many weights go in each group of a row; for a share the row is one group. Zeros
    are among them, all of them."""
    num_rows, num_columns = weight_OI.shape
    if isinstance(pattern, NOfM):
        pattern.check_columns(num_columns)
        quotas_OG = torch.full((num_rows, num_columns // pattern.m), pattern.m - pattern.n)
    else:
        quotas_OG = removed_by_row(pattern, num_rows, num_columns)[:, None]
    num_zeros_OG = (weight_OI == 0).reshape(*quotas_OG.shape, -1).sum(2)
    return torch.maximum(quotas_OG, num_zeros_OG)


def _check_size(shape: tuple[int, int], num_removed: int) -> None:
    num_rows, num_columns = shape
    num_changes = float(num_removed) * num_columns**2
    if num_changes > MOST_CHANGES:
        raise UnsupportedError(
            "OBS is exact and slow: a layer would take too long",
            seen=f"{num_rows} x {num_columns} weights of which {num_removed} go: "
            f"{num_changes:.1e} changes of inverses, and the most is {MOST_CHANGES:.0e}",
            remedy="Use sparsegpt, which comes near it in a fraction of the time, or leave this "
            "layer out.",
        )


class _Surgery:
    """Rows in progress, each with the inverse for the columns that it has left."""

    def __init__(self, weight_RI: Tensor, quotas_RG: Tensor, inverse: DampedInverse) -> None:
        self.values_RI = weight_RI.clone()
        self.mask_RI = torch.ones_like(weight_RI, dtype=torch.bool)
        self._quotas_RG = quotas_RG.clone()
        self._inverse_RII = inverse.inverse_II.repeat(weight_RI.shape[0], 1, 1)
        self._is_zero_RI = weight_RI == 0
        self._dead_I = inverse.dead_I

    def run(self) -> None:
        rows_R = torch.arange(self.values_RI.shape[0])
        group_size = self.values_RI.shape[1] // self._quotas_RG.shape[1]
        for _ in range(int(self._quotas_RG.sum(1).max())):
            columns_R = self._costs().argmin(1)
            has_left_R = self._quotas_RG.sum(1) > 0
            pivots_R = self._inverse_RII[rows_R, columns_R, columns_R]
            inverse_RI = self._inverse_RII[rows_R, columns_R]
            share_RI = (inverse_RI / pivots_R[:, None]).masked_fill_(~has_left_R[:, None], 0)
            self.values_RI -= self.values_RI[rows_R, columns_R, None] * share_RI
            self._inverse_RII.baddbmm_(share_RI[:, :, None], inverse_RI[:, None], alpha=-1)
            self.mask_RI[rows_R, columns_R] &= ~has_left_R
            self._quotas_RG[rows_R, columns_R // group_size] -= has_left_R.long()
            self.values_RI.masked_fill_(~self.mask_RI, 0)

    def _costs(self) -> Tensor:
        """Returns what removing each column costs: infinitely much if it is gone or its group has
        given enough, and less than nothing for zeros."""
        diagonal_RI = self._inverse_RII.diagonal(dim1=1, dim2=2)
        costs_RI = self.values_RI.square() / diagonal_RI
        costs_RI.masked_fill_(self._dead_I, 0).masked_fill_(self._is_zero_RI, -1)
        enough_RG = self._quotas_RG == 0
        enough_RI = enough_RG.repeat_interleave(costs_RI.shape[1] // enough_RG.shape[1], dim=1)
        return costs_RI.masked_fill_(~self.mask_RI | enough_RI, torch.inf)
