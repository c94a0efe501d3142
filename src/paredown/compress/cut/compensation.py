"""Least-squares compensation: the linear layer after a cut takes up what was lost.

A linear layer W reads inputs x, of which the columns K stay. Its new weight is

    argmin over W' of  sum |W' x_K - t|^2 + d |W' - W_K|^2  =  (C_K + d W_K) (H_KK + d Id)^-1

with H = sum x x^T and C = sum t x^T over the calibration tokens; d is `damp` times the mean of H's
diagonal. The target t is what the layer should give: W x itself, or what brings the stream of the
cut model back to that of the original, so that one layer's loss does not add to the next one's.

Shapes: N tokens, I input columns, K of them that stay, O outputs.
"""

import torch
from torch import Tensor

from paredown.compress.calibrate.moments import HessianSum, inputs_not_finite
from paredown.compress.cut.kept_units import Indices
from paredown.compress.quantize.method import Moments

# Measured on the built-in model and on SmolLM2: losses hardly differ from 0.001 to 0.03.
DAMP = 0.01


class FitSums:
    """H and C of a linear layer with weight `weight_OI`, as 2/N times the sums. Without targets C
    is W H: the layer should give what it gave."""

    def __init__(self, weight_OI: Tensor) -> None:
        self._weight_OI = weight_OI
        self._hessian = HessianSum(weight_OI.shape[1])
        self._cross_OI: Tensor | None = None
        self.num_rows = 0

    def add(self, x: Tensor, target: Tensor | None) -> None:
        """Adds inputs [.., I] and targets [.., O]; all calls have targets, or none. Raises
        CheckpointError for values that are not finite."""
        x_NI = x.reshape(-1, x.shape[-1])
        self._hessian.add(x_NI)
        total = self.num_rows + x_NI.shape[0]
        if target is not None and x_NI.shape[0]:
            target_NO = target.reshape(-1, target.shape[-1])
            if self._cross_OI is None:
                assert self.num_rows == 0
                self._cross_OI = torch.zeros_like(self._weight_OI)
            self._cross_OI.addmm_(target_NO.T, x_NI, beta=self.num_rows / total, alpha=2 / total)
        self.num_rows = total

    @property
    def has_targets(self) -> bool:
        return self._cross_OI is not None

    def moments(self) -> Moments:
        return self._hessian.moments()

    def cross(self, hessian_II: Tensor) -> Tensor:
        """Returns C [O, I]."""
        if self._cross_OI is None:
            return self._weight_OI @ hessian_II
        if not bool(torch.isfinite(self._cross_OI).all()):
            raise inputs_not_finite("the products of inputs and targets")
        return self._cross_OI


def compensated(
    weight_OI: Tensor, hessian_II: Tensor, cross_OI: Tensor, kept: Indices, damp: float = DAMP
) -> Tensor:
    """Returns the weight [O, K] that comes nearest to the targets, computed in float64. Columns
    whose inputs were always zero keep their weights."""
    kept_K = torch.from_numpy(kept)
    h_KK = hessian_II[kept_K[:, None], kept_K].double()
    added = damping(hessian_II, damp)
    wanted_OK = cross_OI[:, kept_K].double() + added * weight_OI[:, kept_K].double()
    h_KK.diagonal().add_(added)
    lower_KK = torch.linalg.cholesky(h_KK)
    return torch.cholesky_solve(wanted_OK.T, lower_KK).T.to(weight_OI.dtype)


def damping(hessian_II: Tensor, damp: float) -> float:
    """Returns the number that is added to the diagonal of H. It is 1 where H is 0 everywhere."""
    return damp * float(hessian_II.diagonal().double().mean()) or 1.0
