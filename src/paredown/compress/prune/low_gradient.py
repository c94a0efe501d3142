"""Pruning by low gradients: weights whose gradients stay low over the steps of training go.

A step is one calibration window, at the model's own weights: with steps as small as fine-tuning of
a finished model takes, the weights hardly move, and what differs between steps is the text. The
score is the largest |g| of all windows, so that a weight goes only if no text asked for it. The
whole matrix competes.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from paredown.compress.prune.gradient_scores import by_scores
from paredown.compress.prune.method import Pruned, Seen
from paredown.compress.prune.pattern import Pattern


@dataclass(frozen=True, kw_only=True)
class LowGradient:
    """Pruning by low gradients; it has no options."""

    needs_hessian: ClassVar[bool] = False
    needs_gradients: ClassVar[bool] = True

    def check(self, pattern: Pattern) -> None:
        """Accepts every pattern."""

    def prune(self, weight_OI: Tensor, pattern: Pattern, seen: Seen) -> Pruned:
        assert seen.gradients is not None
        return by_scores(weight_OI, seen.gradients.largest_OI, pattern)
