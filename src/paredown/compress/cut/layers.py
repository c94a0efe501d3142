"""Removes whole layers, those that change the residual least: the block influence of ShortGPT
(arXiv 2403.03853), 1 - cos(a layer's input, its output), as a mean over tokens.

The layer before a removed one gets a `down` that also gives what the removed one added, as well as
least squares can (compensation.py)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

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


class InfluenceSum:
    """Sums 1 - cos over the tokens so far."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._num_tokens = 0

    def add(self, x_BTD: Tensor, y_BTD: Tensor) -> None:
        cosines_BT = functional.cosine_similarity(x_BTD, y_BTD, dim=-1)
        self._sum += float((1 - cosines_BT).sum(dtype=torch.float64))
        self._num_tokens += cosines_BT.numel()

    @property
    def mean(self) -> float:
        return self._sum / self._num_tokens


def kept_layers(influences: Sequence[float], num_removed: int) -> tuple[int, ...]:
    """Returns the layers that stay, in order. Among equals the later one goes: it has fewer layers
    after it."""
    order = sorted(range(len(influences)), key=lambda layer: (influences[layer], -layer))
    return tuple(sorted(order[num_removed:]))
