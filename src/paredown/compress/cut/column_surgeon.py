"""Removes units of columns from a weight one after the other, always those that cost least (Optimal
Brain Surgeon, Hassibi and Stork 1993, for blocks of columns).

A unit S is a set of columns of W. Removing it and letting the other columns take up what it did
costs, with M = (H + d Id)^-1,

    tr(W_S (M_SS)^-1 W_S^T) / 2        and changes  W by -W_S (M_SS)^-1 M_S,
                                                    M by -M_:S (M_SS)^-1 M_S:

Shapes: I input columns, O outputs, U units of S columns each.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.compress.cut.compensation import damping
from paredown.errors import CheckpointError

# Units of one column are removed in about this many rounds; each updates W and M once.
_ROUNDS = 32


@dataclass(frozen=True, kw_only=True)
class Removal:
    """`kept_U` are the units that stay, in order. `losses` has the predicted cost of each removed
    unit, in the order in which they went: half the mean squared change of the outputs."""

    kept_U: Tensor
    losses: tuple[float, ...]


def remove_units(
    weight_OI: Tensor, hessian_II: Tensor, num_units: int, num_removed: int, damp: float
) -> Removal:
    """Chooses `num_removed` of `num_units` equal units of neighbouring columns. It computes in
    float64; H is 2/N times the sum of x x^T. Raises CheckpointError where H cannot be inverted."""
    surgeon = _Surgeon(weight_OI, hessian_II, num_units, damp)
    losses: list[float] = []
    size = weight_OI.shape[1] // num_units
    # Whole heads are few and not alike: they go one by one.
    at_once = max(1, num_removed // _ROUNDS) if size == 1 else 1
    while len(losses) < num_removed:
        losses += surgeon.remove(min(at_once, num_removed - len(losses)))
    return Removal(kept_U=surgeon.alive_U.nonzero()[:, 0], losses=tuple(losses))


class _Surgeon:
    def __init__(self, weight_OI: Tensor, hessian_II: Tensor, num_units: int, damp: float) -> None:
        self._weight_OI = weight_OI.to(torch.float64, copy=True)
        self._inverse_II = _inverse(hessian_II, damp)
        self._num_columns = weight_OI.shape[1] // num_units
        self.alive_U = torch.ones(num_units, dtype=torch.bool)

    def remove(self, num: int) -> list[float]:
        """Removes the `num` cheapest units together."""
        costs_U = self._costs()
        costs_U[~self.alive_U] = torch.inf
        chosen = costs_U.topk(num, largest=False).indices
        self.alive_U[chosen] = False
        columns_S = (
            chosen[:, None] * self._num_columns + torch.arange(self._num_columns)
        ).flatten()
        rows_SI = self._inverse_II[columns_S]
        solved_SI = torch.linalg.solve(rows_SI[:, columns_S], rows_SI)
        self._weight_OI.addmm_(self._weight_OI[:, columns_S], solved_SI, alpha=-1)
        self._inverse_II.addmm_(rows_SI.T, solved_SI, alpha=-1)
        # What is gone must be exactly gone, since later inverses are taken of what is left.
        self._weight_OI[:, columns_S] = 0
        self._inverse_II[columns_S] = 0
        self._inverse_II[:, columns_S] = 0
        self._inverse_II[columns_S, columns_S] = 1
        return [float(cost) for cost in costs_U[chosen]]

    def _costs(self) -> Tensor:
        if self._num_columns == 1:
            return self._weight_OI.square().sum(0) / self._inverse_II.diagonal() / 2
        num_units, size = len(self.alive_U), self._num_columns
        starts = torch.arange(num_units)
        blocks_USS = self._inverse_II.view(num_units, size, num_units, size)[starts, :, starts]
        parts_UOS = self._weight_OI.view(-1, num_units, size).transpose(0, 1)
        solved_USO = torch.linalg.solve(blocks_USS, parts_UOS.mT)
        costs_U: Tensor = (parts_UOS.mT * solved_USO).sum((1, 2)) / 2
        return costs_U


def _inverse(hessian_II: Tensor, damp: float) -> Tensor:
    """Returns (H + d Id)^-1, computed in the memory of the result."""
    inverse_II = hessian_II.to(torch.float64, copy=True)
    inverse_II.diagonal().add_(damping(hessian_II, damp))
    info = torch.empty((), dtype=torch.int32)
    # LAPACK uses the transposed layout, in which the result replaces the matrix.
    lower_II = inverse_II.mT
    torch.linalg.cholesky_ex(lower_II, out=(lower_II, info))
    if info.item():
        raise CheckpointError(
            "the inputs of a linear layer are too alike to tell what its columns do",
            seen=f"a Gram matrix that is singular with a damp of {damp:g}",
            remedy="Give more or more varied calibration text (--samples), or a larger damp.",
        )
    torch.cholesky_inverse(lower_II, out=lower_II)
    return inverse_II
