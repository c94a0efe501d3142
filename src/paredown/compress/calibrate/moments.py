"""Sums the second moments of a linear layer's inputs batch by batch (GPTQ, arXiv 2210.17323).

Shapes: N rows of inputs so far, I input columns.
"""

import torch
from torch import Tensor

from paredown.compress.quantize.method import Moments
from paredown.errors import CheckpointError

# Only the lower triangle is summed, in stripes of this many columns. That is little more than half
# the work, in stripes wide enough for an efficient matrix product.
_STRIPE_COLUMNS = 512


class HessianSum:
    """H = 2/N times the sum of x x^T over the rows x so far, as a running mean in float32. It
    needs only the memory of H [I, I]."""

    def __init__(self, num_columns: int) -> None:
        self._hessian_II = torch.zeros(num_columns, num_columns, dtype=torch.float32)
        self._num_rows = 0

    def add(self, x: Tensor) -> None:
        """Adds the rows of `x` [.., I] of any float dtype. Raises CheckpointError if a value is
        not finite; the sum then stays as it was."""
        x_NI = x.reshape(-1, x.shape[-1]).float()
        if x_NI.shape[0] == 0:
            return
        lowest, highest = x_NI.aminmax()
        if not bool(torch.isfinite(lowest) and torch.isfinite(highest)):
            raise inputs_not_finite(f"values from {lowest.item()} to {highest.item()}")
        total = self._num_rows + x_NI.shape[0]
        for first in range(0, x_NI.shape[1], _STRIPE_COLUMNS):
            last = first + _STRIPE_COLUMNS
            self._hessian_II[first:, first:last].addmm_(
                x_NI[:, first:].T, x_NI[:, first:last], beta=self._num_rows / total, alpha=2 / total
            )
        self._num_rows = total

    def moments(self) -> Moments:
        """Returns the sum so far, exactly symmetric; it shares its memory with this object. Raises
        CheckpointError if squares of the inputs exceeded the largest float."""
        hessian_II = self._hessian_II
        for first in range(0, hessian_II.shape[0], _STRIPE_COLUMNS):
            last = first + _STRIPE_COLUMNS
            square = hessian_II[first:last, first:last]
            square.copy_(square.tril() + square.tril(-1).T)
            hessian_II[first:last, last:] = hessian_II[last:, first:last].T
        past_float_I = ~torch.isfinite(hessian_II.diagonal())
        if bool(past_float_I.any()):
            raise inputs_not_finite(
                f"the sum of squares of column {int(past_float_I.nonzero()[0])}"
            )
        return Moments(hessian_II=hessian_II, num_rows=self._num_rows)


def inputs_not_finite(seen: object) -> CheckpointError:
    return CheckpointError(
        "the inputs of a linear layer are not finite numbers",
        seen=seen,
        remedy="The checkpoint is damaged or its activations pass the largest float; "
        "use another one.",
    )
