"""Straight-through rounding: forward it rounds, backward it is the identity (arXiv 1308.3432)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Rounding = Callable[[Tensor], Tensor]


def straight_through(x: Tensor, rounding: Rounding, limit: Tensor | float | None = None) -> Tensor:
    """Returns `rounding(x)`, computed in float32, in the dtype of `x`. The gradient passes
    unchanged, except that it is 0 where |x| is above `limit`: those values were clamped."""
    rounded: Tensor = _StraightThrough.apply(x, rounding, limit)  # type: ignore[no-untyped-call]
    return rounded


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rounding: Rounding, limit: Tensor | float | None) -> Tensor:
        if limit is not None:
            ctx.save_for_backward(x.abs() > limit)
        return rounding(x.to(torch.promote_types(x.dtype, torch.float32))).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = outputs
        for is_clamped in ctx.saved_tensors:
            gradient = gradient.masked_fill(is_clamped, 0.0)
        return gradient, None, None
