"""Fake quantization of a weight: forward the values that its codes will have, backward the
gradients of a straight-through estimator, for the weight and for its scales (LSQ, arXiv
1902.08153).

Shapes: O rows, I columns, G groups of columns, C columns of a group. With t = w / s + z,
q = clamp(round(t)), the value (q - z) s and its gradient g:

    dw = g if round(t) is a code, else 0
    ds = 1 / sqrt(C m) times the group's sum of g (q - t) if round(t) is a code, else g (q - z)

m is the largest magnitude of a code. The factor makes steps of scales as large as those of weights
(LSQ, section 2.2). LSQ takes t itself, not round(t), to tell which weights are beyond the grid.
Those at the two ends would then get no gradient, which at 2 bits is most of them.
"""

from typing import Any

import torch
from torch import Tensor

from paredown.compress.grid import code_range, decode, encode, grouped
from paredown.spec.weight import WeightSpec


def fake_quantize(
    weight_OI: Tensor, scales_OG: Tensor, zeros_OG: Tensor, spec: WeightSpec
) -> Tensor:
    """Returns the values [O, I] of the weight's codes on that grid."""
    values_OI: Tensor = _FakeQuantize.apply(  # type: ignore[no-untyped-call]
        weight_OI, scales_OG, zeros_OG, spec
    )
    return values_OI


class _FakeQuantize(torch.autograd.Function):
    """Keeps its inputs alone, which exist anyway, and computes the codes again for gradients."""

    @staticmethod
    def forward(
        ctx: Any, weight_OI: Tensor, scales_OG: Tensor, zeros_OG: Tensor, spec: WeightSpec
    ) -> Tensor:
        ctx.save_for_backward(weight_OI, scales_OG, zeros_OG)
        ctx.spec = spec
        scales_OG1, zeros_OG1 = scales_OG[..., None], zeros_OG[..., None]
        codes_OGC = encode(grouped(weight_OI, spec.group_size), scales_OG1, zeros_OG1, spec)
        return decode(codes_OGC, scales_OG1, zeros_OG1).view_as(weight_OI)

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        weight_OI, scales_OG, zeros_OG = ctx.saved_tensors
        spec: WeightSpec = ctx.spec
        scales_OG1, zeros_OG1 = scales_OG[..., None], zeros_OG[..., None]
        weight_OGC = grouped(weight_OI, spec.group_size)
        gradient_OGC = grouped(outputs[0], spec.group_size)
        places_OGC = (weight_OGC / scales_OG1).add_(zeros_OG1)
        low, high = code_range(spec)
        nearest_OGC = places_OGC.round() if spec.is_integer else places_OGC
        is_code_OGC = (nearest_OGC >= low) & (nearest_OGC <= high)
        scale_OG = None
        if ctx.needs_input_grad[1]:
            codes_OGC = encode(weight_OGC, scales_OG1, zeros_OG1, spec)
            terms_OGC = codes_OGC - torch.where(is_code_OGC, places_OGC, zeros_OG1)
            num_columns = weight_OGC.shape[-1]
            factor = (num_columns * max(-low, high)) ** -0.5
            scale_OG = (gradient_OGC * terms_OGC).sum(-1) * factor
        weight_OI = (gradient_OGC * is_code_OGC).view_as(outputs[0])
        return weight_OI, scale_OG, None, None
