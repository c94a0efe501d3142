"""Removes whole layers, those that are missed least (layer_costs.py).

The layer before a removed one gets a `down` that also gives what the removed one added, as well as
least squares can (compensation.py). So a layer costs what this leaves. Without compensation it
costs its block influence: 1 - cos(input, output), as a mean over tokens (ShortGPT, arXiv
2403.03853).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from paredown.compress.cut.method import Compensation, Unit
from paredown.errors import ConfigError
from paredown.spec.model import ModelSpec

_COMPENSATION = Compensation()


@dataclass(frozen=True, kw_only=True)
class CutLayers:
    """Removes `num` layers. Raises ConfigError for fewer than one."""

    unit: ClassVar[Unit] = "layers"

    num: int
    compensation: Compensation | None = _COMPENSATION

    def __post_init__(self) -> None:
        if self.num < 1:
            raise ConfigError(
                "no layer is to be removed",
                seen=self.num,
                remedy="Give a number of layers from 1: prune-layers-4 removes four.",
            )

    def check(self, spec: ModelSpec) -> ModelSpec:
        if self.num >= spec.num_layers:
            raise ConfigError(
                "the last layer of a model cannot be removed",
                seen=f"{self.num} of {spec.num_layers} layers",
                remedy=f"Remove at most {spec.num_layers - 1}.",
            )
        return replace(spec, layers=spec.layers[self.num :])


def kept_layers(costs: Sequence[float], num_removed: int) -> tuple[int, ...]:
    """Returns the layers that stay, in order. Among equals the later one goes: it has fewer layers
    after it."""
    order = sorted(range(len(costs)), key=lambda layer: (costs[layer], -layer))
    return tuple(sorted(order[num_removed:]))
