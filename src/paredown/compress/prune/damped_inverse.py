"""The inverse of a layer's Hessian, with as little damping as it needs. Shapes: I input columns."""

from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.compress.damping import rising_damps


@dataclass(frozen=True, kw_only=True)
class DampedInverse:
    """`inverse_II` belongs to H with `damp` times the mean of its diagonal on the diagonal. Columns
    without inputs (`dead_I`) stand alone in it."""

    inverse_II: Tensor
    dead_I: Tensor
    damp: float


def damped_inverse(hessian_II: Tensor, damp: float, dtype: torch.dtype) -> DampedInverse | None:
    """Returns the inverse in `dtype`. Returns None if all of H is 0, or if the most damping does
    not help."""
    dead_I = hessian_II.diagonal() == 0
    if bool(dead_I.all()):
        return None
    mean = float(hessian_II.diagonal()[~dead_I].double().mean())
    for grown in rising_damps(damp):
        damped_II = hessian_II.to(dtype, copy=True)
        damped_II.diagonal().masked_fill_(dead_I, mean).add_(grown * mean)
        lower_II, info = torch.linalg.cholesky_ex(damped_II)
        if info.item() == 0:
            inverse_II = torch.cholesky_inverse(lower_II, out=damped_II)
            diagonal_I = inverse_II.diagonal()
            if bool((diagonal_I > 0).all() and diagonal_I.isfinite().all()):
                return DampedInverse(inverse_II=inverse_II, dead_I=dead_I, damp=grown)
    return None
