"""Removes neurons: columns between the halves of an MLP, of every expert and of the shared one too.

A neuron j costs what its removal does to the output of `down`. Four ways to tell:

    obs         structured Optimal Brain Surgeon: |W_j|^2 / [H^-1]_jj, while the others take up what
                it did, in rounds (column_surgeon.py)
    merge       redundant neurons: j goes into the partner i that stays and is most like it,
                |W_j|^2 (H_jj - H_ij^2 / H_ii), W_i += W_j H_ij / H_ii
    taylor      the first-order change of the loss, mean over windows of |sum_t a_tj dL/da_tj|
                (arXiv 1906.10771)
    activation  how often the neuron gives more than nearly nothing (arXiv 1607.03250)

Shapes: I neurons, O outputs.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from paredown.compress.cut.column_surgeon import remove_units
from paredown.compress.cut.kept_units import Indices
from paredown.compress.cut.method import Compensation, Fit, Unit
from paredown.compress.cut.widths import check_share, remaining_width
from paredown.spec.mlp import Mlp
from paredown.spec.model import ModelSpec

Score = Literal["obs", "merge", "taylor", "activation"]
_COMPENSATION = Compensation()
# A neuron is nearly silent for a token below this share of its layer's root mean square.
NEAR_ZERO = 0.05


@dataclass(frozen=True, kw_only=True)
class CutNeurons:
    """Removes `share` of the neurons of each MLP; all layers keep equally many. `multiple_of` fixes
    the multiple that remains (256 for the K-quants of GGUF). Raises ConfigError for a share outside
    [0, 1)."""

    unit: ClassVar[Unit] = "neurons"

    share: float
    score: Score = "obs"
    compensation: Compensation | None = _COMPENSATION
    multiple_of: int | None = None

    def __post_init__(self) -> None:
        check_share(self.share)

    def check(self, spec: ModelSpec) -> ModelSpec:
        layers = []
        for layer in spec.layers:
            mlp = replace(layer.mlp, size=self.remaining(layer.mlp.size))
            if not isinstance(mlp, Mlp) and mlp.shared_size is not None:
                mlp = replace(mlp, shared_size=self.remaining(mlp.shared_size))
            layers.append(replace(layer, mlp=mlp))
        return replace(spec, layers=tuple(layers))

    def remaining(self, size: int) -> int:
        """Returns how many of `size` neurons stay."""
        return remaining_width(size, self.share, self.multiple_of)


def choose_neurons(cut: CutNeurons, fit: Fit) -> tuple[Indices, Tensor | None]:
    """Returns the neurons that stay, and by merging the weight of `down` for them [O, K]."""
    num = fit.weight_OI.shape[1]
    num_removed = num - cut.remaining(num)
    if num_removed == 0 or fit.is_dead:
        return np.arange(num - num_removed), None
    if cut.score == "merge":
        return merged(fit, num_removed)
    if cut.score == "obs":
        damp = _COMPENSATION.damp if cut.compensation is None else cut.compensation.damp
        weight_OI = fit.weight_OI
        if fit.has_targets:
            # Removal starts from the best weight for the targets.
            weight_OI = fit.solved(np.arange(num), damp)
        return remove_units(weight_OI, fit.hessian_II, num, num_removed, damp).kept_U.numpy(), None
    scores_I = fit.near_zero_I if cut.score == "activation" else fit.scores_I
    assert scores_I is not None
    return largest(scores_I, num - num_removed), None


def largest(scores_I: Tensor, num: int) -> Indices:
    """Returns the places of the `num` largest scores, in order; among equals the first ones."""
    order = torch.argsort(scores_I, descending=True, stable=True)[:num]
    return order.sort().values.numpy()


def merged(fit: Fit, num_removed: int) -> tuple[Indices, Tensor]:
    """Merges neurons one after the other, always the pair that loses least."""
    hessian_II = fit.hessian_II.double()
    weight_OI = fit.weight_OI.to(torch.float64, copy=True)
    diagonal_I = hessian_II.diagonal()
    safe_I = torch.where(diagonal_I > 0, diagonal_I, 1)
    # What one neuron leaves unexplained of another, [removed, partner].
    left_II = diagonal_I[:, None] - hessian_II.square() / safe_I
    left_II.fill_diagonal_(torch.inf)
    stays_I = torch.ones(len(diagonal_I), dtype=torch.bool)
    for _ in range(num_removed):
        costs_I = weight_OI.square().sum(0) * left_II.min(1).values
        costs_I[~stays_I] = torch.inf
        gone = int(costs_I.argmin())
        partner = int(left_II[gone].argmin())
        share = hessian_II[partner, gone] / safe_I[partner]
        weight_OI[:, partner] += share * weight_OI[:, gone]
        left_II[:, gone] = torch.inf
        stays_I[gone] = False
    kept = stays_I.nonzero()[:, 0]
    return kept.numpy(), weight_OI[:, kept].to(fit.weight_OI.dtype)
