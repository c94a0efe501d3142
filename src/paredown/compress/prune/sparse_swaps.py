"""SparseSwaps (arXiv 2512.10922): exchanges a weight that stays for one that goes, as long as the
loss falls.

Shapes: O output rows, R rows in progress, I input columns, G groups of M columns. Let d = w - v be
a row's change and g = d H. If column p returns with its old value w_p and column u leaves, the loss
1/2 d H d^T grows by exactly

    a_p + b_u - w_p v_u H_pu,   a_p = w_p^2 H_pp / 2 - w_p g_p,   b_u = v_u^2 H_uu / 2 + v_u g_u

Both lie in one row, or in one group of n:m, so every row or group keeps as many weights as before.
The paper takes the best of all pairs each time, which costs I^2 operations a row. Here the column
with the least a_p looks for its best partner, at I operations; all pairs are searched only for rows
where that finds none. The result is the same kind of optimum: no exchange lowers the loss.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from paredown.compress.prune.layer_loss import row_losses
from paredown.compress.prune.method import Pruned
from paredown.compress.prune.pattern import NOfM, Pattern
from paredown.compress.quantize.method import Moments
from paredown.errors import ConfigError

# The numbers of a weight in progress at once, so that they stay in the processor's cache.
_VALUES = 1 << 18
# An exchange must gain more than this share of the terms that cancel in it, which float32 rounds.
_LEAST_GAIN = 1e-5
# Rows without an exchange are put aside when they are more than this share.
_IDLE_SHARE = 0.25
# The bounds of a search are computed at this many places.
_NUM_BOUNDS = 32


@dataclass(frozen=True, kw_only=True)
class SparseSwaps:
    """Exchanges at most `max_swaps` pairs of each row. Raises ConfigError for fewer than 1."""

    max_swaps: int = 1000

    def __post_init__(self) -> None:
        if self.max_swaps < 1:
            raise ConfigError(
                "SparseSwaps may exchange no weight at all",
                seen=self.max_swaps,
                remedy="Allow at least one exchange, or leave the refinement out.",
            )

    def refine(
        self, weight_OI: Tensor, pruned: Pruned, pattern: Pattern, moments: Moments
    ) -> Pruned:
        """Returns a mask with as many weights in every row, or in every group of n:m, and at most
        the same loss. Weights that return have their old values, those that stay keep theirs."""
        hessian_II = moments.hessian_II.to(weight_OI.dtype)
        num_rows, num_columns = weight_OI.shape
        group = pattern.m if isinstance(pattern, NOfM) else num_columns
        pairs = _Pairs(hessian_II, group)
        values_OI, mask_OI = pruned.values_OI.clone(), pruned.mask_OI.clone()
        loss, size = 0.0, max(1, _VALUES // num_columns)
        for first in range(0, num_rows, size):
            rows = slice(first, first + size)
            weight_RI, old_RI = weight_OI[rows], pruned.values_OI[rows]
            _Rows(pairs, weight_RI, values_OI[rows], mask_OI[rows]).run(self.max_swaps)
            before_R = row_losses(weight_RI - old_RI, hessian_II)
            after_R = row_losses(weight_RI - values_OI[rows], hessian_II)
            worse_R = after_R >= before_R
            values_OI[rows][worse_R] = old_RI[worse_R]
            mask_OI[rows][worse_R] = pruned.mask_OI[rows][worse_R]
            loss += float(torch.minimum(before_R, after_R).sum())
        return replace(pruned, values_OI=values_OI, mask_OI=mask_OI, loss=loss)


class _Pairs:
    """H for all rows. `half_I` is half its diagonal, `blocks_GMM` are the groups' own blocks.
    Beside the diagonal |H_pu| is at most `reach_I[p]` times `size_I[u]`."""

    def __init__(self, hessian_II: Tensor, group: int) -> None:
        self.hessian_II = hessian_II
        self.group = group
        self.blocks_GMM = hessian_II[None]
        if group < hessian_II.shape[0]:
            places_GM = torch.arange(hessian_II.shape[0]).view(-1, group)
            self.blocks_GMM = hessian_II[places_GM[:, :, None], places_GM[:, None]]
        diagonal_I = hessian_II.diagonal().clamp(min=0)
        self.half_I = diagonal_I / 2
        self.size_I = diagonal_I.sqrt()
        self.reach_I = torch.empty_like(self.size_I)
        inverse_I = torch.where(self.size_I > 0, 1 / self.size_I, 0)
        for p in range(len(self.reach_I)):
            sizes_I = hessian_II[p].abs() * inverse_I
            sizes_I[p] = 0
            self.reach_I[p] = sizes_I.max()


class _Rows:
    """Rows in progress. `values_RI` and `mask_RI` of the constructor are changed in place.

    Of the rows that still change, `places_R` are their places there, `gradient_RI` is g, `back_RI`
    is w^2 H / 2 where a weight may return, and `out_RI` is v^2 H / 2 where one may leave; both are
    infinite elsewhere."""

    def __init__(
        self, pairs: _Pairs, weight_RI: Tensor, values_RI: Tensor, mask_RI: Tensor
    ) -> None:
        self.pairs = pairs
        self.all_values_RI = values_RI
        self.all_mask_RI = mask_RI
        self.places_R = torch.arange(weight_RI.shape[0])
        self.weight_RI = weight_RI
        self.values_RI = values_RI.clone()
        self.mask_RI = mask_RI.clone()
        self.gradient_RI = (weight_RI - values_RI) @ pairs.hessian_II
        may_return_RI = ~mask_RI & (weight_RI != 0)
        self.back_RI = (weight_RI.square() * pairs.half_I).masked_fill_(~may_return_RI, torch.inf)
        self.out_RI = (values_RI.square() * pairs.half_I).masked_fill_(~mask_RI, torch.inf)

    def run(self, max_swaps: int) -> None:
        """Exchanges until no row gains."""
        idle_R = torch.zeros_like(self.places_R, dtype=torch.bool)
        for _ in range(max_swaps):
            p_R, u_R, gains_R = self._likely()
            gains_R &= ~idle_R
            for row in (~gains_R & ~idle_R).nonzero().flatten().tolist():
                pair = self._search(row)
                if pair is not None:
                    p_R[row], u_R[row], gains_R[row] = *pair, True
            self._swap(p_R, u_R, gains_R)
            idle_R = ~gains_R
            if int(idle_R.sum()) > _IDLE_SHARE * len(idle_R):
                self._put_aside(idle_R)
                idle_R = idle_R[~idle_R]
            if not len(idle_R):
                return
        self._put_aside(torch.ones_like(idle_R))

    def _likely(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns for each row the column that returns most cheaply, its best partner, and whether
        the exchange gains."""
        a_RI = torch.addcmul(self.back_RI, self.weight_RI, self.gradient_RI, value=-1)
        b_RI = torch.addcmul(self.out_RI, self.values_RI, self.gradient_RI)
        num_rows, num_columns = a_RI.shape
        rows_R, group = torch.arange(num_rows), self.pairs.group
        cheap_RI = a_RI
        if group < num_columns:
            least_RG1 = b_RI.view(num_rows, -1, group).amin(2, keepdim=True)
            cheap_RI = (a_RI.view(num_rows, -1, group) + least_RG1).view(num_rows, -1)
        p_R = cheap_RI.argmin(1)
        w_R1 = self.weight_RI[rows_R, p_R, None]
        pair_RI = self.pairs.hessian_II[p_R].mul_(self.values_RI).mul_(w_R1)
        pair_RGM = torch.sub(b_RI, pair_RI, out=pair_RI).view(num_rows, -1, group)
        group_R = p_R // group
        best_R, within_R = pair_RGM[rows_R, group_R].min(1)
        u_R = within_R + group_R * group
        return p_R, u_R, a_RI[rows_R, p_R] + best_R < -self._least_gain(rows_R, p_R, u_R)

    def _least_gain(self, rows_R: Tensor, p_R: Tensor, u_R: Tensor) -> Tensor:
        w_R, v_R = self.weight_RI[rows_R, p_R], self.values_RI[rows_R, u_R]
        back_R = w_R.square() * self.pairs.half_I[p_R] + (w_R * self.gradient_RI[rows_R, p_R]).abs()
        out_R = v_R.square() * self.pairs.half_I[u_R] + (v_R * self.gradient_RI[rows_R, u_R]).abs()
        return _LEAST_GAIN * (back_R + out_R)

    def _search(self, row: int) -> tuple[int, int] | None:
        """Returns the best exchange of a row, None if none gains."""
        a_I = torch.addcmul(self.back_RI[row], self.weight_RI[row], self.gradient_RI[row], value=-1)
        b_I = torch.addcmul(self.out_RI[row], self.values_RI[row], self.gradient_RI[row])
        search = self._search_row if self.pairs.group == len(a_I) else self._search_groups
        p, u, grows = search(a_I, b_I, self.weight_RI[row], self.values_RI[row])
        gains = grows < -self._least_gain(*(torch.tensor([one]) for one in (row, p, u)))
        return (p, u) if bool(gains) else None

    def _search_row(
        self, a_I: Tensor, b_I: Tensor, w_I: Tensor, v_I: Tensor
    ) -> tuple[int, int, float]:
        """Returns the best of all exchanges, and how much the loss grows by it."""
        reach_I, size_I = w_I.abs() * self.pairs.reach_I, v_I.abs() * self.pairs.size_I
        p_P = (a_I + _bounds(b_I, size_I, reach_I) < 0).nonzero().flatten()
        u_U = (b_I < torch.inf).nonzero().flatten()
        if not len(p_P) or not len(u_U):
            return 0, 0, 0.0
        grows_PU = self.pairs.hessian_II[p_P][:, u_U].mul_(v_I[u_U]).mul_(w_I[p_P, None])
        grows_PU = torch.sub(b_I[u_U], grows_PU, out=grows_PU).add_(a_I[p_P, None])
        best = int(grows_PU.argmin())
        p, u = int(p_P[best // len(u_U)]), int(u_U[best % len(u_U)])
        return p, u, float(grows_PU.flatten()[best])

    def _search_groups(
        self, a_I: Tensor, b_I: Tensor, w_I: Tensor, v_I: Tensor
    ) -> tuple[int, int, float]:
        """Does the same within groups."""
        size = self.pairs.group
        a_GM, b_GM, w_GM, v_GM = (one.view(-1, size) for one in (a_I, b_I, w_I, v_I))
        grows_GMM = self.pairs.blocks_GMM * w_GM[:, :, None] * v_GM[:, None]
        grows_GMM = a_GM[:, :, None] + b_GM[:, None] - grows_GMM
        best = int(grows_GMM.argmin())
        group, p, u = best // size**2, best // size % size, best % size
        return group * size + p, group * size + u, float(grows_GMM.flatten()[best])

    def _swap(self, p_R: Tensor, u_R: Tensor, gains_R: Tensor) -> None:
        """Exchanges p for u in the rows that gain."""
        rows_R = torch.arange(len(p_R))
        w_R = torch.where(gains_R, self.weight_RI[rows_R, p_R], 0)
        v_R = torch.where(gains_R, self.values_RI[rows_R, u_R], 0)
        self.gradient_RI.addcmul_(self.pairs.hessian_II[u_R], v_R[:, None])
        self.gradient_RI.addcmul_(self.pairs.hessian_II[p_R], w_R[:, None], value=-1)
        rows_R, p_R, u_R, w_R, v_R = (one[gains_R] for one in (rows_R, p_R, u_R, w_R, v_R))
        self.values_RI[rows_R, p_R], self.values_RI[rows_R, u_R] = w_R, torch.zeros_like(w_R)
        self.mask_RI[rows_R, p_R], self.mask_RI[rows_R, u_R] = True, False
        old_R = self.weight_RI[rows_R, u_R]
        self.out_RI[rows_R, p_R] = self.back_RI[rows_R, p_R]
        self.back_RI[rows_R, p_R], self.out_RI[rows_R, u_R] = torch.inf, torch.inf
        back_R = (old_R.square() * self.pairs.half_I[u_R]).masked_fill_(old_R == 0, torch.inf)
        self.back_RI[rows_R, u_R] = back_R

    def _put_aside(self, idle_R: Tensor) -> None:
        """Stores the rows in `idle_R` and goes on without them."""
        places_R = self.places_R[idle_R]
        self.all_values_RI[places_R] = self.values_RI[idle_R]
        self.all_mask_RI[places_R] = self.mask_RI[idle_R]
        self.places_R, self.weight_RI, self.values_RI, self.mask_RI = (
            one[~idle_R] for one in (self.places_R, self.weight_RI, self.values_RI, self.mask_RI)
        )
        self.gradient_RI, self.back_RI, self.out_RI = (
            one[~idle_R] for one in (self.gradient_RI, self.back_RI, self.out_RI)
        )


def _bounds(b_I: Tensor, size_I: Tensor, reach_I: Tensor) -> Tensor:
    """Returns for each reach t at most the least b_u - t `size_I[u]`: the exact value at the next
    of a few places above t, as it falls in t."""
    step = reach_I.max() / _NUM_BOUNDS
    if step == 0:
        return b_I.min().expand(len(reach_I))
    # One place more keeps rounding from passing the last.
    places_N = torch.arange(_NUM_BOUNDS + 2, dtype=b_I.dtype) * step
    least_N = (b_I - places_N[:, None] * size_I).amin(1)
    return least_N[(reach_I / step).ceil().long()]
