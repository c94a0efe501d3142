"""A head, in PyTorch: what makes vectors, scores or labels of token vectors.

Shapes: B texts of one length, T tokens, D hidden size, E size of what a head makes.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from paredown.models.decoder.norms import make_norm
from paredown.spec.head import Head, HeadActivation, HeadStep, PoolingKind

# Vectors shorter than this are divided by it instead of by their length, as in PyTorch.
_MIN_LENGTH = 1e-12

ACTIVATIONS: Mapping[HeadActivation, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


def pool(x_BTD: Tensor, kind: PoolingKind) -> Tensor:
    """Returns the vector [B, D] of each text."""
    num_tokens = x_BTD.shape[1]
    if kind == "cls":
        return x_BTD[:, 0]
    if kind == "last":
        return x_BTD[:, -1]
    if kind == "max":
        return x_BTD.amax(dim=1)
    if kind == "max_log_relu":
        return x_BTD.relu().log1p().amax(dim=1)
    if kind == "weighted_mean":
        weights_T1 = torch.arange(1, num_tokens + 1, device=x_BTD.device)[:, None].to(x_BTD.dtype)
        return (x_BTD * weights_T1).sum(dim=1) / weights_T1.sum()
    divisor = num_tokens**0.5 if kind == "mean_sqrt_len" else num_tokens
    return x_BTD.sum(dim=1) / divisor


class Step(nn.Module):
    """A linear layer, an activation and a norm. A tied step has no weight of its own."""

    def __init__(self, step: HeadStep, shape: tuple[int, int]) -> None:
        super().__init__()
        num_rows, num_columns = shape
        self.spec = step
        if not step.is_tied:
            self.weight = nn.Parameter(torch.empty(num_rows, num_columns))
        if step.has_bias:
            self.bias = nn.Parameter(torch.empty(num_rows))
        self.norm = make_norm(step.norm, num_rows)

    def forward(self, x: Tensor, table_VD: Tensor) -> Tensor:
        """Applies the step to vectors [..., columns]; `table_VD` is the embedding's table."""
        weight = table_VD if self.spec.is_tied else self.weight
        y = functional.linear(x, weight, self.bias if self.spec.has_bias else None)
        if self.spec.activation is not None:
            y = ACTIVATIONS[self.spec.activation](y)
        normed: Tensor = self.norm(y)
        return normed


class HeadModule(nn.Module):
    """The head of a model. Its steps are named by their roles without "head.": "0", "token.0"."""

    def __init__(self, head: Head, hidden_size: int) -> None:
        super().__init__()
        self.spec = head
        shapes = head.step_shapes(hidden_size)
        self.token = nn.ModuleList(
            Step(step, shapes[f"head.token.{index}"]) for index, step in enumerate(head.token_steps)
        )
        for index, step in enumerate(head.steps):
            self.add_module(str(index), Step(step, shapes[f"head.{index}"]))

    def forward(self, x_BTD: Tensor, table_VD: Tensor) -> Tensor:
        """Returns [B, E], or [B, T, E] where nothing is pooled, from the vectors of all tokens.
        `table_VD` is the embedding's table."""
        for step in self.token:
            x_BTD = step(x_BTD, table_VD)
        y = x_BTD
        if self.spec.pooling:
            y = torch.cat([pool(x_BTD, kind) for kind in self.spec.pooling], dim=-1)
        for index in range(len(self.spec.steps)):
            y = self.get_submodule(str(index))(y, table_VD)
        return functional.normalize(y, dim=-1, eps=_MIN_LENGTH) if self.spec.is_normalized else y
