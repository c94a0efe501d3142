"""First-order Taylor pruning (Molchanov et al., arXiv 1611.06440): a weight counts as much as the
loss of the model changes, to first order, when it becomes 0.

That is |w| times |g|, with the mean of |g| over the calibration windows. The whole matrix competes.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from paredown.compress.prune.gradient_scores import by_scores
from paredown.compress.prune.method import Pruned, Seen
from paredown.compress.prune.pattern import Pattern


@dataclass(frozen=True, kw_only=True)
class Taylor:
    """First-order Taylor pruning; it has no options."""

    needs_hessian: ClassVar[bool] = False
    needs_gradients: ClassVar[bool] = True

    def check(self, pattern: Pattern) -> None:
        """Accepts every pattern."""

    def prune(self, weight_OI: Tensor, pattern: Pattern, seen: Seen) -> Pruned:
        assert seen.gradients is not None
        return by_scores(weight_OI, weight_OI.abs() * seen.gradients.mean_OI, pattern)
