"""Masks: which weights stay, chosen from a score for each weight and a pattern.

Shapes: O output rows, I input columns. A mask [O, I] is true where a weight stays.
"""

from typing import Literal

import torch
from torch import Tensor

from paredown.compress.prune.pattern import NOfM, Pattern, Share
from paredown.errors import CheckpointError

# The weights that compete for a share: those of one output row, or of the whole matrix.
Compared = Literal["row", "matrix"]

# The scores that are ranked at once, which bounds the copies made of them.
_RANKED_SCORES = 1 << 24


def choose_mask(
    scores_OI: Tensor, weight_OI: Tensor, pattern: Pattern, compared: Compared
) -> Tensor:
    """Returns the mask that removes the lowest scores; of equal ones, the first are removed.

    A share removes exactly `pattern.num_removed` weights of the matrix, from each row equally many
    or one more. Weights that are 0 already count among the removed, and stay removed if they are
    more than the pattern asks for. `compared` does not matter for n:m, where groups compete.

    Raises ConfigError for columns that `m` does not divide, CheckpointError for scores that are not
    finite.
    """
    num_rows, num_columns = weight_OI.shape
    _check_finite(scores_OI)
    scores_OI = scores_OI.masked_fill(weight_OI == 0, -torch.inf)
    if isinstance(pattern, NOfM):
        pattern.check_columns(num_columns)
        scores_RC = scores_OI.reshape(-1, pattern.m)
        counts_R = torch.full((scores_RC.shape[0],), pattern.m - pattern.n)
    elif compared == "row":
        scores_RC = scores_OI
        counts_R = removed_by_row(pattern, num_rows, num_columns)
    else:
        scores_RC = scores_OI.reshape(1, -1)
        counts_R = torch.tensor([pattern.num_removed(scores_OI.numel())])
    removed_RC = _lowest(scores_RC, counts_R)
    return ~removed_RC.reshape(num_rows, num_columns) & (weight_OI != 0)


def removed_by_row(share: Share, num_rows: int, num_columns: int) -> Tensor:
    """Returns how many weights of each row go, so that those of the matrix are exactly right."""
    ends = [share.num_removed(row * num_columns) for row in range(num_rows + 1)]
    return torch.tensor(ends).diff()


def _lowest(scores_RC: Tensor, counts_R: Tensor) -> Tensor:
    """Returns which scores are the `counts_R` lowest of their row."""
    removed_RC = torch.empty_like(scores_RC, dtype=torch.bool)
    size = max(1, _RANKED_SCORES // max(1, scores_RC.shape[1]))
    for first in range(0, scores_RC.shape[0], size):
        rows = slice(first, first + size)
        removed_RC[rows] = _lowest_at_once(scores_RC[rows], counts_R[rows, None])
    return removed_RC


def _lowest_at_once(scores_RC: Tensor, counts_R1: Tensor) -> Tensor:
    lowest, highest = counts_R1.aminmax()
    if highest == 0:
        return torch.zeros_like(scores_RC, dtype=torch.bool)
    if lowest == highest:
        last_R1 = scores_RC.kthvalue(int(highest), dim=1, keepdim=True).values
    else:
        last_R1 = scores_RC.sort(dim=1).values.gather(1, (counts_R1 - 1).clamp(min=0))
    below_RC = scores_RC < last_R1
    equal_RC = scores_RC == last_R1
    wanted_R1 = counts_R1 - below_RC.sum(1, keepdim=True)
    return below_RC | (equal_RC & (equal_RC.cumsum(1, dtype=torch.int32) <= wanted_R1))


def _check_finite(scores_OI: Tensor) -> None:
    if scores_OI.numel() == 0:
        return
    lowest, highest = scores_OI.aminmax()
    if not bool(torch.isfinite(lowest) and torch.isfinite(highest)):
        raise CheckpointError(
            "the scores by which weights are pruned are not finite numbers",
            seen=f"scores from {lowest.item()} to {highest.item()}",
            remedy="The checkpoint is damaged, or its weights and activations pass the largest "
            "float; use another one.",
        )
