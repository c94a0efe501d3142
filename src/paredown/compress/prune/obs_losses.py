"""The losses that OBS predicts for a layer: w_q^2 / (2 [H^-1]_qq) for removing a single weight.

Their sum over many weights is what budgets spend. It leaves out that the weights go together, which
OBS itself (obs.py) follows step by step. Shapes: O output rows, I input columns.
"""

import itertools

import numpy as np
import torch
from torch import Tensor

from paredown.compress.prune.budget import LossCurve
from paredown.compress.prune.damped_inverse import damped_inverse
from paredown.compress.quantize.method import Moments


def obs_losses(weight_OI: Tensor, moments: Moments, damp: float = 0.01) -> Tensor:
    """Returns the loss of removing each weight alone while the others of its row change in the best
    way, in the weight's dtype. Columns without inputs cost nothing."""
    inverse = damped_inverse(moments.hessian_II, damp, weight_OI.dtype)
    if inverse is None:
        return torch.zeros_like(weight_OI)
    scale_I = (0.5 / inverse.inverse_II.diagonal()).masked_fill(inverse.dead_I, 0)
    return weight_OI.square() * scale_I


def loss_curve(losses_OI: Tensor, num_points: int = 200) -> LossCurve:
    """Returns the sum of the lowest losses over the share of weights that they belong to, at
    `num_points` shares from 0 to below 1."""
    # NumPy sorts without an index beside each value.
    losses_W = np.sort(losses_OI.detach().numpy(), axis=None)
    num_weights = losses_W.size
    counts = sorted({num_weights * point // num_points for point in range(num_points)})
    parts = [losses_W[one:two].sum(dtype=np.float64) for one, two in itertools.pairwise(counts)]
    return LossCurve(
        num_weights=num_weights,
        shares=tuple(count / num_weights for count in counts),
        losses=tuple(float(one) for one in np.cumsum([0.0, *parts])),
    )
