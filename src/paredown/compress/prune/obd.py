"""Optimal Brain Damage (LeCun, Denker and Solla, 1989): a weight counts as much as the loss of the
model grows, to second order, when it alone becomes 0.

That is w^2 h / 2 with the diagonal h of the loss's second derivatives. As in the paper it comes
from a Gauss-Newton form: the mean of g^2 over the calibration windows, which is the diagonal of the
empirical Fisher matrix. The whole matrix competes.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from paredown.compress.prune.gradient_scores import by_scores
from paredown.compress.prune.method import Pruned, Seen
from paredown.compress.prune.pattern import Pattern


@dataclass(frozen=True, kw_only=True)
class OBD:
    """Optimal Brain Damage; it has no options."""

    needs_hessian: ClassVar[bool] = False
    needs_gradients: ClassVar[bool] = True

    def check(self, pattern: Pattern) -> None:
        """Accepts every pattern."""

    def prune(self, weight_OI: Tensor, pattern: Pattern, seen: Seen) -> Pruned:
        assert seen.gradients is not None
        # The root orders alike, and squares of small gradients would pass the smallest float32.
        return by_scores(weight_OI, weight_OI.abs() * seen.gradients.square_OI.sqrt(), pattern)
