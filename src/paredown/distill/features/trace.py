"""Trace: what a layer computes on its way, for losses that look inside.

Shapes: B rows, T tokens, D hidden size, H query heads, K key-value heads, C columns of a head, F
neurons of the MLP.
"""

from copy import copy
from dataclasses import dataclass

from torch import Tensor

from paredown.models.decoder.attention import FusedPositions
from paredown.models.decoder.layer import Layer


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A layer's output, its queries and keys after their rotation, and what its MLP reads."""

    layer: Layer
    output_BTD: Tensor
    q_BHTC: Tensor
    k_BKTC: Tensor
    mlp_input_BTD: Tensor

    def neurons(self) -> Tensor:
        """Returns the neurons of the MLP before their activation, [B, T, F]; in a gated MLP those
        of the gate."""
        mlp = self.layer.spec.mlp
        role = "gate" if "gate" in mlp.up_roles else "up"
        return self.layer.apply_linear(role, self.mlp_input_BTD)


def trace(layer: Layer, x_BTD: Tensor, positions: FusedPositions) -> Trace:
    """Runs the layer. Other threads may run it meanwhile: the tap is that of a copy, which shares
    the weights."""
    seen: dict[str, Tensor] = {}

    def keep(point: str, values: Tensor) -> Tensor:
        if point in ("q", "k", "mlp_input"):
            seen[point] = values
        return values

    watched = copy(layer)
    watched.tap = keep
    output_BTD = watched(x_BTD, *positions)
    return Trace(
        layer=layer,
        output_BTD=output_BTD,
        q_BHTC=seen["q"],
        k_BKTC=seen["k"],
        mlp_input_BTD=seen["mlp_input"],
    )
