"""Magnitude pruning (Han et al., arXiv 1506.02626): the weights nearest 0 of a matrix go.

compress/prune/global_threshold.py finds shares for the layers by one threshold for all of them.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from paredown.compress.prune.mask import choose_mask
from paredown.compress.prune.method import Pruned, Seen
from paredown.compress.prune.pattern import Pattern


@dataclass(frozen=True, kw_only=True)
class Magnitude:
    """Magnitude pruning of one layer; it has no options."""

    needs_hessian: ClassVar[bool] = False
    needs_gradients: ClassVar[bool] = False

    def check(self, pattern: Pattern) -> None:
        """Accepts every pattern."""

    def prune(self, weight_OI: Tensor, pattern: Pattern, seen: Seen) -> Pruned:
        return by_magnitude(weight_OI, pattern)


def by_magnitude(weight_OI: Tensor, pattern: Pattern, *notes: str) -> Pruned:
    """Prunes by magnitude. Methods that look at more do this where they see nothing."""
    mask_OI = choose_mask(weight_OI.abs(), weight_OI, pattern, "matrix")
    return Pruned(values_OI=weight_OI.masked_fill(~mask_OI, 0), mask_OI=mask_OI, notes=notes)


def instead_of(why: str) -> str:
    """Returns the note of a method that pruned by magnitude."""
    return f"pruned by magnitude instead: {why}"
