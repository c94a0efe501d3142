"""SparseSwaps (arXiv 2512.10922): exchanges a weight that stays for one that goes, as long as the
loss falls.

Shapes: O output rows, R rows in progress, I input columns, G groups of M columns. Let d = w - v be
a row's change and g = d H. If column p returns with its old value w_p and column u leaves, the loss
1/2 d H d^T grows by exactly

    a_p + b_u - w_p v_u H_pu,   a_p = -w_p g_p + w_p^2 H_pp / 2,   b_u = v_u g_u + v_u^2 H_uu / 2

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

# The numbers of a weight in progress at once. They stay in the processor's cache.
_VALUES = 1 << 18
# An exchange must gain more than this share of the terms that cancel in it, which float32 rounds.
_LEAST_GAIN = 1e-5


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
        values_OI, mask_OI = pruned.values_OI.clone(), pruned.mask_OI.clone()
        losses_O = row_losses(weight_OI - values_OI, hessian_II)
        num_columns = weight_OI.shape[1]
        group = pattern.m if isinstance(pattern, NOfM) else num_columns
        size = max(1, _VALUES // num_columns)
        for first in range(0, weight_OI.shape[0], size):
            rows = slice(first, first + size)
            swaps = _Rows(weight_OI[rows], values_OI[rows], mask_OI[rows], hessian_II, group)
            swaps.run(self.max_swaps)
            after_R = row_losses(weight_OI[rows] - swaps.values_RI, hessian_II)
            better_R = after_R < losses_O[rows]
            values_OI[rows] = torch.where(better_R[:, None], swaps.values_RI, values_OI[rows])
            mask_OI[rows] = torch.where(better_R[:, None], swaps.mask_RI, mask_OI[rows])
            losses_O[rows] = torch.minimum(after_R, losses_O[rows])
        return replace(
            pruned, values_OI=values_OI, mask_OI=mask_OI, loss=float(losses_O.sum())
        )


class _Rows:
    """Rows in progress: their current values, mask and gradient g = (w - v) H."""

    def __init__(
        self,
        weight_RI: Tensor,
        values_RI: Tensor,
        mask_RI: Tensor,
        hessian_II: Tensor,
        group: int,
    ) -> None:
        self.weight_RI = weight_RI
        self.values_RI = values_RI.clone()
        self.mask_RI = mask_RI.clone()
        self.hessian_II = hessian_II
        self.group = group
        self.half_I = hessian_II.diagonal() / 2
        self.gradient_RI = (weight_RI - values_RI) @ hessian_II
        self.rows_R = torch.arange(weight_RI.shape[0])
        self.num_searches = 0
        self.num_swaps = 0

    def run(self, max_swaps: int) -> None:
        done_R = torch.zeros(len(self.rows_R), dtype=torch.bool)
        for _ in range(max_swaps):
            back_R, out_R, gains_R = self.likely()
            gains_R &= ~done_R
            for row in (~gains_R & ~done_R).nonzero().flatten().tolist():
                self.num_searches += 1
                pair = self.search(row)
                if pair is None:
                    done_R[row] = True
                else:
                    back_R[row], out_R[row], gains_R[row] = *pair, True
            if bool(done_R.all()):
                return
            self.swap(back_R, out_R, gains_R)

    def terms(self) -> tuple[Tensor, Tensor]:
        w, v, g, h = self.weight_RI, self.values_RI, self.gradient_RI, self.half_I
        a_RI = (w * (w * h - g)).masked_fill_(self.mask_RI | (w == 0), torch.inf)
        b_RI = (v * (v * h + g)).masked_fill_(~self.mask_RI, torch.inf)
        return a_RI, b_RI

    def likely(self) -> tuple[Tensor, Tensor, Tensor]:
        a_RI, b_RI = self.terms()
        num_rows, num_columns = a_RI.shape
        least_RG1 = b_RI.view(num_rows, -1, self.group).amin(2, keepdim=True)
        back_R = (a_RI.view(num_rows, -1, self.group) + least_RG1).view(num_rows, -1).argmin(1)
        row = self.rows_R
        w_R1 = self.weight_RI[row, back_R, None]
        pair_RI = b_RI.addcmul_(self.values_RI * self.hessian_II[back_R], w_R1, value=-1)
        group_R = back_R // self.group
        out_R = pair_RI.view(num_rows, -1, self.group)[row, group_R].argmin(1)
        out_R += group_R * self.group
        gain_R = a_RI[row, back_R] + pair_RI[row, out_R]
        return back_R, out_R, gain_R < -_LEAST_GAIN * self.scale(row, back_R, out_R)

    def scale(self, row_R: Tensor, back_R: Tensor, out_R: Tensor) -> Tensor:
        w_R, v_R = self.weight_RI[row_R, back_R].abs(), self.values_RI[row_R, out_R].abs()
        g_back_R, g_out_R = self.gradient_RI[row_R, back_R], self.gradient_RI[row_R, out_R]
        return w_R * (w_R * self.half_I[back_R] + g_back_R.abs()) + v_R * (
            v_R * self.half_I[out_R] + g_out_R.abs()
        )

    def search(self, row: int) -> tuple[int, int] | None:
        w, v, g, h = (
            self.weight_RI[row],
            self.values_RI[row],
            self.gradient_RI[row],
            self.half_I,
        )
        mask = self.mask_RI[row]
        P = (~mask & (w != 0)).nonzero().flatten()
        U = mask.nonzero().flatten()
        if not len(P) or not len(U):
            return None
        a = (w * (w * h - g))[P]
        b = (v * (v * h + g))[U]
        T = self.hessian_II[P][:, U].mul_(v[U]).mul_(-w[P][:, None]).add_(b).add_(a[:, None])
        if self.group < len(mask):
            T.masked_fill_((P // self.group)[:, None] != (U // self.group), torch.inf)
        best = int(T.argmin())
        p, u = int(P[best // len(U)]), int(U[best % len(U)])
        s = self.scale(torch.tensor(row), torch.tensor(p), torch.tensor(u))
        return (p, u) if T.view(-1)[best] < -_LEAST_GAIN * s else None

    def swap(self, back_R: Tensor, out_R: Tensor, ok_R: Tensor) -> None:
        row, back, out = self.rows_R[ok_R], back_R[ok_R], out_R[ok_R]
        self.num_swaps += len(row)
        w, v = self.weight_RI[row, back], self.values_RI[row, out]
        self.gradient_RI[row] += v[:, None] * self.hessian_II[out] - w[:, None] * self.hessian_II[back]
        self.values_RI[row, back] = w
        self.values_RI[row, out] = 0
        self.mask_RI[row, back] = True
        self.mask_RI[row, out] = False
