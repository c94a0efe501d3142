"""Aim: what the output projection or the `down` of a layer should give for each token.

Without a file it should give what it gave. Each token counts by its relative error, since the next
norm divides by its size: a few tokens with huge residuals (the first of a text) would decide
everything otherwise.

Shapes: B windows, T tokens, D hidden size, I inputs of the linear layer.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from paredown.compress.cut.compensation import FitSums

_SMALLEST = 1e-20


class Aim:
    """`wanted` yields residuals after the linear layer, batch by batch, or its outputs where a norm
    follows it or its sum (`is_normed`). Outputs are multiplied by `multiplier` before they are
    added."""

    def __init__(
        self, module: nn.Linear, wanted: Iterator[Tensor] | None, multiplier: float, is_normed: bool
    ) -> None:
        self._module = module
        self._multiplier = 1.0 if is_normed else multiplier
        self._wanted = wanted
        self._is_normed = is_normed

    def add(self, sums: FitSums, x_BTI: Tensor, before_BTD: Tensor) -> None:
        """Adds a batch of inputs; `before_BTD` is the residual that the output is added to."""
        if self._wanted is None:
            given_BTD = self._multiplier * self._module(x_BTI)
            after_BTD = given_BTD if self._is_normed else before_BTD + given_BTD
            sums.add(self._multiplier * x_BTI / _sizes(after_BTD), None)
            return
        after_BTD = next(self._wanted)
        target_BTD = after_BTD if self._is_normed else after_BTD - before_BTD
        if self._module.bias is not None:
            target_BTD = target_BTD - self._multiplier * self._module.bias
        sizes_BT1 = _sizes(after_BTD)
        sums.add(self._multiplier * x_BTI / sizes_BT1, target_BTD / sizes_BT1)


def _sizes(values_BTD: Tensor) -> Tensor:
    sizes_BT1: Tensor = torch.linalg.vector_norm(values_BTD, dim=-1, keepdim=True)
    return sizes_BT1.clamp(min=_SMALLEST)
