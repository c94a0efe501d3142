"""Refit: the weights that stay take the values with the least loss under their mask.

Each row v of a layer minimizes 1/2 (w - v) H (w - v)^T over the columns that stay. As in ALPS
(arXiv 2406.07831) all rows are solved together by preconditioned conjugate gradients: an iteration
is one product with H, and no row's own matrix is ever built. Shapes: O output rows, I input
columns.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from paredown.compress.prune.layer_loss import row_losses
from paredown.compress.prune.method import Pruned
from paredown.compress.prune.pattern import Pattern
from paredown.compress.quantize.method import Moments
from paredown.errors import ConfigError

# The numbers of a weight that are solved at once, which bounds the copies made of them.
_VALUES = 1 << 22
# A row is solved when its residual has fallen to this share, squared: what float32 can tell.
_SOLVED = 1e-12


@dataclass(frozen=True, kw_only=True)
class Refit:
    """Refits in at most `num_iterations` products with H. On layers of SmolLM2-135M and at 50 %, 20
    come within 2 % of the least loss and 50 within 0.1 %. Raises ConfigError for fewer than 1."""

    num_iterations: int = 30

    def __post_init__(self) -> None:
        if self.num_iterations < 1:
            raise ConfigError(
                "a refit without an iteration changes nothing",
                seen=self.num_iterations,
                remedy="Allow at least one iteration, or leave the refit out.",
            )

    def refine(
        self, weight_OI: Tensor, pruned: Pruned, pattern: Pattern, moments: Moments
    ) -> Pruned:
        """Returns the same mask with better values; a row whose loss would not fall keeps its
        own."""
        hessian_II = moments.hessian_II.to(weight_OI.dtype)
        values_OI, loss = pruned.values_OI.clone(), 0.0
        size = max(1, _VALUES // weight_OI.shape[1])
        for first in range(0, weight_OI.shape[0], size):
            rows = slice(first, first + size)
            weight_RI, old_RI, mask_RI = weight_OI[rows], values_OI[rows], pruned.mask_OI[rows]
            new_RI = _solve(weight_RI, old_RI, mask_RI, hessian_II, self.num_iterations)
            before_R = row_losses(weight_RI - old_RI, hessian_II)
            after_R = row_losses(weight_RI - new_RI, hessian_II)
            # A loss that is not a number compares as false.
            better_R = after_R < before_R
            values_OI[rows] = torch.where(better_R[:, None], new_RI, old_RI)
            loss += float(torch.where(better_R, after_R, before_R).sum())
        return replace(pruned, values_OI=values_OI, loss=loss)


def _solve(
    weight_RI: Tensor, start_RI: Tensor, mask_RI: Tensor, hessian_II: Tensor, num_iterations: int
) -> Tensor:
    """Returns the values after conjugate gradients from `start_RI`, preconditioned by H's
    diagonal."""
    diagonal_I = hessian_II.diagonal()
    scale_RI = torch.where(mask_RI & (diagonal_I > 0), 1 / diagonal_I, 0)
    values_RI = start_RI.clone()
    residual_RI = ((weight_RI - values_RI) @ hessian_II).mul_(mask_RI)
    scaled_RI = residual_RI * scale_RI
    direction_RI = scaled_RI.clone()
    size_R = (residual_RI * scaled_RI).sum(1)
    solved_R = _SOLVED * size_R
    for _ in range(num_iterations):
        product_RI = (direction_RI @ hessian_II).mul_(mask_RI)
        bend_R = (direction_RI * product_RI).sum(1)
        step_R1 = torch.where(bend_R > 0, size_R / bend_R, 0)[:, None]
        values_RI.addcmul_(direction_RI, step_R1)
        residual_RI.addcmul_(product_RI, step_R1, value=-1)
        torch.mul(residual_RI, scale_RI, out=scaled_RI)
        before_R, size_R = size_R, (residual_RI * scaled_RI).sum(1)
        if bool((size_R <= solved_R).all()):
            break
        turn_R1 = torch.where(before_R > 0, size_R / before_R, 0)[:, None]
        direction_RI.mul_(turn_R1).add_(scaled_RI)
    return values_RI
