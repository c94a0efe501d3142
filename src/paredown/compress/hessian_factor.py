"""Factors the Hessian of a layer's inputs for methods that settle a weight column by column
(compress/column_solver.py).

Shapes: O output rows, I input columns.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.compress.damping import MOST_DAMP, grown_damp, rising_damps
from paredown.compress.quantize.method import Moments
from paredown.errors import CheckpointError


@dataclass(frozen=True, kw_only=True)
class HessianFactor:
    """H = L L^T, with damping on its diagonal and its columns in the order `order_I`, in which the
    first column to be settled stands last. `unit_II` is M = L / diag(L), and `pivots_I` are the
    squares of diag(L). `added` is the amount on the diagonal beyond H. `dead_I` are the columns
    whose inputs were all 0, in their own order. `notes` tell of them and of grown damping."""

    unit_II: Tensor
    pivots_I: Tensor
    order_I: Tensor
    dead_I: Tensor
    added: float
    notes: tuple[str, ...]

    def without_dead(self, weight_OI: Tensor) -> Tensor:
        """Returns the weight with zeros in the dead columns."""
        return weight_OI.masked_fill(self.dead_I, 0) if bool(self.dead_I.any()) else weight_OI

    def restored(self, values_IO: Tensor) -> Tensor:
        """Returns [O, I] with the columns in their own order, from rows in the order `order_I`."""
        values_OI = torch.empty_like(values_IO.T, memory_format=torch.contiguous_format)
        values_OI[:, self.order_I] = values_IO.T
        return values_OI


@dataclass(frozen=True, kw_only=True)
class NoFactor:
    """`why` says for the report why there is no factor."""

    why: str


def factor_hessian(
    weight_OI: Tensor, moments: Moments, damp: float, find_order: Callable[[Tensor], Tensor]
) -> HessianFactor | NoFactor:
    """Factors H in the weight's dtype. `find_order` returns `order_I` for the diagonal of H.
    `damp` times the mean of the diagonal is added to it, and more if H has no factor otherwise.

    Raises CheckpointError if weights or H are not finite.
    """
    _check_finite(weight_OI, "weights")
    _check_finite(moments.hessian_II, "sums of squares of the inputs")
    diagonal_I = moments.hessian_II.diagonal().to(weight_OI.dtype)
    dead_I = diagonal_I == 0
    if bool(dead_I.all()):
        return NoFactor(why="no input but zeros was seen")
    order_I = find_order(diagonal_I)
    hessian_II = moments.hessian_II.to(weight_OI.dtype)
    mean = hessian_II.diagonal()[~dead_I].mean().item()
    for grown in rising_damps(damp):
        lower_II = _lower(hessian_II, order_I, mean, grown)
        if lower_II is not None:
            pivots_I = lower_II.diagonal().clone()
            return HessianFactor(
                unit_II=lower_II.div_(pivots_I),
                pivots_I=pivots_I.square(),
                order_I=order_I,
                dead_I=dead_I,
                added=grown * mean,
                notes=_notes(damp, grown, dead_I),
            )
    return NoFactor(why=f"the Hessian is singular even with a damp of {MOST_DAMP:g}")


def _lower(hessian_II: Tensor, order_I: Tensor, mean: float, damp: float) -> Tensor | None:
    """Returns L; None if the damped H has no factor."""
    ordered_II = hessian_II[order_I[:, None], order_I]
    ordered_I = ordered_II.diagonal()
    ordered_I.masked_fill_(ordered_I == 0, mean).add_(damp * mean)
    # LAPACK uses the transposed layout, in which the factor replaces the matrix in place.
    lower_II = ordered_II.mT
    info = torch.empty((), dtype=torch.int32)
    torch.linalg.cholesky_ex(lower_II, out=(lower_II, info))
    pivots_I = lower_II.diagonal()
    usable = info.item() == 0 and bool((pivots_I > 0).all() and pivots_I.isfinite().all())
    return lower_II if usable else None


def _notes(damp: float, grown: float, dead_I: Tensor) -> tuple[str, ...]:
    notes = []
    if grown != damp:
        notes.append(grown_damp(damp, grown))
    if bool(dead_I.any()):
        notes.append(f"{int(dead_I.sum())} columns with no input but zeros became 0")
    return tuple(notes)


def _check_finite(values: Tensor, name: str) -> None:
    lowest, highest = values.aminmax()
    if not bool(torch.isfinite(lowest) and torch.isfinite(highest)):
        raise CheckpointError(
            f"the {name} of a linear layer are not finite numbers",
            seen=f"values from {lowest.item()} to {highest.item()}",
            remedy="The checkpoint is damaged or its training diverged; use another one.",
        )
