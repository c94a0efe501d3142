"""Norms, in PyTorch. `weight` is the stored weight; values are multiplied by it plus the norm's
offset."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from paredown.spec.norm import Norm


class RMSNorm(nn.Module):
    """RMSNorm (arXiv 1910.07467): x / rms(x) * weight, over the last dimension."""

    def __init__(self, size: int, eps: float, offset: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps
        self.offset = offset

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight + self.offset if self.offset else self.weight
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * weight


class LayerNorm(nn.LayerNorm):
    """LayerNorm (arXiv 1607.06450), over the last dimension."""

    def __init__(
        self, size: int, eps: float, offset: float = 0.0, *, has_bias: bool = True
    ) -> None:
        super().__init__(size, eps=eps, bias=has_bias)
        self.offset = offset

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight + self.offset if self.offset else self.weight
        return functional.layer_norm(x, self.normalized_shape, weight, self.bias, self.eps)


def make_norm(norm: Norm | None, size: int) -> RMSNorm | LayerNorm | nn.Identity:
    """Makes the module of a norm over `size` columns; None changes nothing."""
    if norm is None:
        return nn.Identity()
    if norm.kind == "rms":
        return RMSNorm(size, norm.eps, norm.offset)
    return LayerNorm(size, norm.eps, norm.offset, has_bias=norm.has_bias)
