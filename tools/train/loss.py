"""Next-token cross-entropy whose logits never exist as a whole.

Logits and their gradient are made, used and dropped chunk by chunk, so that they stay in the
cache; the gradients of hidden states and embedding are computed with the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

CHUNK_ROWS = 1024


def softmax_gradient(logits: Tensor, targets: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Sum of the losses of logits (rows, vocab), and `scale` times its gradient in bfloat16."""
    wide = logits.float()
    normalizer = torch.logsumexp(wide, dim=-1, keepdim=True)
    hit = torch.arange(logits.shape[-1]) == targets[:, None]
    losses = normalizer.squeeze(-1) - wide.gather(-1, targets[:, None]).squeeze(-1)
    gradient = ((wide - normalizer).exp() - hit.float()) * scale
    return losses.sum(), gradient.to(logits.dtype)


@cache
def compiled_softmax_gradient() -> Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]:
    """`softmax_gradient` as one pass of vector code; made on first use, for it takes seconds."""
    return torch.compile(softmax_gradient, dynamic=False)


class ChunkedCrossEntropy(torch.autograd.Function):
    """Mean cross-entropy of hidden (rows, width), embedding (vocab, width), targets (rows,)."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, embedding: Tensor, targets: Tensor) -> Tensor:
        rows = len(targets)
        weight = embedding.to(torch.bfloat16)
        hidden_gradient = torch.empty_like(hidden)
        weight_gradient = torch.zeros_like(embedding)
        total = torch.zeros(())
        for start in range(0, rows, CHUNK_ROWS):
            part = hidden[start : start + CHUNK_ROWS]
            loss, gradient = compiled_softmax_gradient()(
                part @ weight.T, targets[start : start + CHUNK_ROWS], 1.0 / rows
            )
            total += loss
            torch.mm(gradient, weight, out=hidden_gradient[start : start + CHUNK_ROWS])
            weight_gradient += gradient.T @ part
        ctx.save_for_backward(hidden_gradient, weight_gradient)
        return total / rows

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor, Tensor, None]:
        (scale,) = outputs
        hidden_gradient, weight_gradient = ctx.saved_tensors
        return hidden_gradient * scale, weight_gradient * scale, None


def mean_cross_entropy(hidden: Tensor, embedding: Tensor, targets: Tensor) -> Tensor:
    """`ChunkedCrossEntropy` as a function."""
    loss: Tensor = ChunkedCrossEntropy.apply(hidden, embedding, targets)  # type: ignore[no-untyped-call]
    return loss
