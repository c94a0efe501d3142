"""Wanda (arXiv 2306.11695): a weight counts as much as |w| times the norm of its input.

The weights of one output row compete, and those that stay keep their values.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from paredown.compress.prune.layer_loss import layer_loss
from paredown.compress.prune.magnitude import by_magnitude, instead_of
from paredown.compress.prune.mask import choose_mask
from paredown.compress.prune.method import Pruned, Seen
from paredown.compress.prune.pattern import Pattern


@dataclass(frozen=True, kw_only=True)
class Wanda:
    """Wanda; it has no options."""

    needs_hessian: ClassVar[bool] = True
    needs_gradients: ClassVar[bool] = False

    def check(self, pattern: Pattern) -> None:
        """Accepts every pattern."""

    def prune(self, weight_OI: Tensor, pattern: Pattern, seen: Seen) -> Pruned:
        """Prunes a weight. Without any input but zeros it prunes by magnitude and says so in the
        notes. Raises ConfigError for columns that the pattern does not fit, CheckpointError for
        weights or inputs that are not finite."""
        assert seen.moments is not None
        hessian_II = seen.moments.hessian_II
        # The sum of squares of a column is H's diagonal, but for a factor that all columns share.
        norms_I = hessian_II.diagonal().clamp(min=0).sqrt().to(weight_OI.dtype)
        if not bool(norms_I.any()):
            return by_magnitude(weight_OI, pattern, instead_of("no input but zeros was seen"))
        mask_OI = choose_mask(weight_OI.abs() * norms_I, weight_OI, pattern, "row")
        return Pruned(
            values_OI=weight_OI.masked_fill(~mask_OI, 0),
            mask_OI=mask_OI,
            loss=layer_loss(weight_OI.masked_fill(mask_OI, 0), hessian_II, weight_OI.dtype),
        )
