"""ROSE (arXiv 2603.05878, docs/methods/sparsegpt.md): prunes the columns first that are predicted
to lose most, while many others can still compensate for them.

Shapes: O output rows, I input columns, B blocks of C columns.
"""

import torch
from torch import Tensor

from paredown.compress.prune.column_mask import ChosenMask
from paredown.compress.prune.pattern import Pattern


def natural_order(diagonal_I: Tensor) -> Tensor:
    """Returns the columns in an order in which the first to settle, the leftmost, is last."""
    return torch.arange(diagonal_I.shape[0] - 1, -1, -1)


def loss_order(
    weight_OI: Tensor, diagonal_I: Tensor, pattern: Pattern, block_columns: int
) -> Tensor:
    """Returns an order in which blocks, and the columns of each, go by their predicted losses; the
    largest is last. Blocks stay together: those among which a share is chosen, or the neighbours
    of n of m. A block that is shorter than the others settles last.

    A column's loss is the sum of |w| sqrt(H_ii) over the weights of it that would go without any
    compensation. The paper orders only weights whose blocks' losses differ by more than half of
    the largest; the order lowers the loss of nearly every other weight too (docs/log.md).
    """
    order_I = natural_order(diagonal_I)
    mask = ChosenMask(pattern, diagonal_I[order_I], weight_OI.shape[0], block_columns)
    losses_I = torch.empty_like(diagonal_I)
    size = mask.stretch * max(1, block_columns // mask.stretch)
    for last in range(order_I.shape[0], 0, -size):
        first = max(0, last - size)
        values_CO = weight_OI.T[order_I[first:last]]
        mask.choose(values_CO, first, last)
        losses_I[first:last] = values_CO.abs_().masked_fill_(mask.mask_IO[first:last], 0).sum(1)
    losses_I *= diagonal_I[order_I].sqrt()
    num_short = losses_I.shape[0] % mask.stretch
    losses_BC = losses_I[num_short:].reshape(-1, mask.stretch)
    starts_B1 = torch.arange(num_short, losses_I.shape[0], mask.stretch)[:, None]
    places_BC = starts_B1 + losses_BC.argsort(dim=1, stable=True)
    blocks_B = losses_BC.sum(1).argsort(stable=True)
    short_C = losses_I[:num_short].argsort(stable=True)
    return order_I[torch.cat((short_C, places_BC[blocks_B].flatten()))]
