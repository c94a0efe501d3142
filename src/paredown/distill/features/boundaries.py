"""Activation boundaries: which neurons of the MLP a token switches on (arXiv 1811.03233, equation
4).

    mean over the neurons of ([t > 0] max(0, m - s) + [t <= 0] max(0, m + s))^2

t are the teacher's neurons before their activation, s the student's through a learned linear map
(the paper's connector), and m the margin. So a student learns the pattern of its teacher's
sparsity, and not the sizes of what is on. In a gated MLP the neurons are the gate's.

Shapes: N targets, F student's neurons, G teacher's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from paredown.distill.batch import Batch
from paredown.distill.features.layer_pair import LayerPair, at_targets
from paredown.distill.features.wide import wide
from paredown.errors import UnsupportedError
from paredown.spec.experts import Experts
from paredown.spec.layer import LayerSpec

# The paper's.
MARGIN = 1.0


@dataclass(frozen=True, kw_only=True)
class Boundaries:
    """Implements PairLoss by the mean over the layers. Each has a map of its own."""

    maps_GF: Sequence[Tensor]

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        return {f"features.neurons.{index}": one for index, one in enumerate(self.maps_GF)}

    def of_embedding(self, own_BTD: Tensor, taught_BTD: Tensor, batch: Batch) -> Tensor:
        return wide(own_BTD).new_zeros(batch.num_targets)

    def of_layer(self, pair: LayerPair, batch: Batch) -> Tensor:
        own_NF = at_targets(pair.own.neurons(), batch)
        taught_NG = at_targets(pair.taught.neurons(), batch)
        losses_N = boundary_losses(own_NF, taught_NG, self.maps_GF[pair.index])
        return losses_N / len(self.maps_GF)


def boundary_losses(own_NF: Tensor, taught_NG: Tensor, map_GF: Tensor) -> Tensor:
    """Returns the loss of each target, [N]."""
    mapped_NG = wide(own_NF @ map_GF.T)
    is_on_NG = taught_NG > 0
    missing_NG = mapped_NG.where(~is_on_NG, -mapped_NG) + MARGIN
    return missing_NG.clamp(min=0).square().mean(-1)


def num_neurons(layer: LayerSpec) -> int:
    """Returns how many neurons the layer's MLP has. Raises UnsupportedError for experts."""
    if isinstance(layer.mlp, Experts):
        raise UnsupportedError(
            "which neurons a token switches on cannot be compared where it chooses experts",
            seen=f"{layer.mlp.num} experts",
            remedy="Give another method, as --method tinybert.",
        )
    return layer.mlp.size
