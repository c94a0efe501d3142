"""Masks of methods that score weights by gradients of the whole model's loss."""

from torch import Tensor

from paredown.compress.prune.magnitude import by_magnitude, instead_of
from paredown.compress.prune.mask import choose_mask
from paredown.compress.prune.method import Pruned
from paredown.compress.prune.pattern import Pattern


def by_scores(weight_OI: Tensor, scores_OI: Tensor, pattern: Pattern) -> Pruned:
    """Removes the lowest scores of the matrix. Without any score but zeros, as of an expert that no
    token was sent to, it prunes by magnitude and says so in the notes."""
    if not bool(scores_OI.any()):
        return by_magnitude(weight_OI, pattern, instead_of("no gradient but zeros was seen"))
    mask_OI = choose_mask(scores_OI.to(weight_OI.dtype), weight_OI, pattern, "matrix")
    return Pruned(values_OI=weight_OI.masked_fill(~mask_OI, 0), mask_OI=mask_OI)
