"""Removes experts of a mixture, those that the router asks least: the sum over tokens of the weight
that an expert's output gets, which counts how often it is asked and how much it matters then.

The router loses the rows of these experts; tokens go to the best ones that are left.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from paredown.compress.cut.ffn import largest
from paredown.compress.cut.kept_units import Indices
from paredown.compress.cut.method import Compensation, Unit
from paredown.compress.cut.widths import check_share, remaining_count
from paredown.errors import UnsupportedError
from paredown.models.decoder.mixture_of_experts import ExpertMixer, RunExpert, choose_experts, mix
from paredown.spec.experts import Experts
from paredown.spec.model import ModelSpec

_COMPENSATION = Compensation()


@dataclass(frozen=True, kw_only=True)
class CutExperts:
    """Removes `share` of the routed experts of each mixture. Raises ConfigError for a share outside
    [0, 1)."""

    unit: ClassVar[Unit] = "experts"

    share: float
    compensation: Compensation | None = _COMPENSATION

    def __post_init__(self) -> None:
        check_share(self.share)

    def check(self, spec: ModelSpec) -> ModelSpec:
        if not spec.has_experts:
            raise UnsupportedError(
                "the model has no experts to remove",
                seen=f"family {spec.family}, {spec.num_layers} dense layers",
                remedy="Remove neurons, heads or layers instead (prune-ffn-25).",
            )
        layers = []
        for layer in spec.layers:
            experts = layer.experts
            if experts is not None:
                num = self.remaining(experts)
                layer = replace(layer, mlp=replace(experts, num=num))
            layers.append(layer)
        return replace(spec, layers=tuple(layers))

    def remaining(self, experts: Experts) -> int:
        """Returns how many experts stay. A token needs `num_per_token` of them."""
        return remaining_count(experts.num, self.share, "experts", experts.num_per_token)


class AskedExperts:
    """An ExpertMixer that sums the weights of each expert over the tokens."""

    def __init__(self, experts: Experts) -> None:
        self.weights_E = torch.zeros(experts.num, dtype=torch.float64)
        self.num_E = torch.zeros(experts.num, dtype=torch.int64)

    def __call__(self, x_ND: Tensor, logits_NE: Tensor, experts: Experts, run: RunExpert) -> Tensor:
        weights_NK, chosen_NK = choose_experts(logits_NE, experts)
        self.weights_E.index_add_(0, chosen_NK.flatten(), weights_NK.flatten().double())
        self.num_E += chosen_NK.flatten().bincount(minlength=experts.num)
        return mix(x_ND, logits_NE, experts, run)

    def most_asked(self, num: int) -> Indices:
        """Returns the `num` experts with the largest weights, in order."""
        return largest(self.weights_E, num)


def fewer_experts(kept: Indices) -> ExpertMixer:
    """Returns a mixer that knows these experts alone."""

    def mixed(x_ND: Tensor, logits_NE: Tensor, experts: Experts, run: RunExpert) -> Tensor:
        fewer = replace(experts, num=len(kept))
        return mix(
            x_ND,
            logits_NE[:, torch.from_numpy(kept)],
            fewer,
            lambda expert, own_ND: run(int(kept[expert]), own_ND),
        )

    return mixed
