"""Losses of logits that never exist as a whole: they are made, used and dropped chunk by chunk.

The gradients of the hidden states and of the output layer are computed with the loss, so nothing
is computed twice. Shapes: N targets, D hidden size, V tokens of the vocabulary.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from paredown.distill.arithmetic import Arithmetic, product_dtype
from paredown.models.decoder.decoder import Decoder
from paredown.units import MEBI

# Returns the loss of each target, [N], from the logits of those targets in float32.
ChunkLoss = Callable[[Tensor, slice], Tensor]

# The float32 logits of a chunk by device. Several tensors of this size live at once; on a CPU they
# should stay cached, a GPU needs enough of them to be busy.
_CHUNK_BYTES = {"cpu": 16 * MEBI, "cuda": 512 * MEBI}
# Fewer rows make products inefficient.
_LEAST_ROWS = 64


def chunk_rows(vocab_size: int, device: str = "cpu") -> int:
    """Returns how many targets a chunk has on a device of that type."""
    return max(_LEAST_ROWS, _CHUNK_BYTES[device] // (4 * vocab_size))


def summed_losses(
    decoder: Decoder, normed_ND: Tensor, losses: ChunkLoss, arithmetic: Arithmetic
) -> Tensor:
    """Returns the sum of the losses of all targets, a scalar of which gradients can be taken. With
    no targets it is 0. `normed_ND` is the input of the output layer."""
    weight_VD, bias_V = decoder.output_layer()

    def chunk_loss(products_NV: Tensor, rows: slice) -> Tensor:
        return losses(decoder.scaled_logits(products_NV), rows).sum()

    total: Tensor = _Summed.apply(  # type: ignore[no-untyped-call]
        normed_ND, weight_VD, bias_V, chunk_loss, product_dtype(arithmetic, weight_VD.dtype)
    )
    return total


def chunk_logits(
    decoder: Decoder, normed_ND: Tensor, arithmetic: Arithmetic
) -> Callable[[slice], Tensor]:
    """Returns a function from a slice of the targets to their logits in float32, without
    gradients."""
    weight_VD, bias_V = decoder.output_layer()
    dtype = product_dtype(arithmetic, weight_VD.dtype)
    weight_VD, hidden_ND = weight_VD.detach().to(dtype), normed_ND.detach().to(dtype)

    def logits(rows: slice) -> Tensor:
        return decoder.scaled_logits(_products(hidden_ND[rows], weight_VD, bias_V))

    return logits


class _Summed(torch.autograd.Function):
    """The sum over the chunks, whose backward pass only scales what the forward pass computed."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        chunk_loss: Callable[[Tensor, slice], Tensor],
        dtype: torch.dtype,
    ) -> Tensor:
        wants_weight, wants_bias = ctx.needs_input_grad[1], ctx.needs_input_grad[2]
        inputs_ND, table_VD = hidden_ND.to(dtype), weight_VD.to(dtype)
        grad_ND = torch.empty_like(inputs_ND)
        grad_VD = torch.zeros_like(weight_VD) if wants_weight else None
        grad_V = torch.zeros_like(bias_V) if bias_V is not None and wants_bias else None
        total = torch.zeros((), dtype=_wide(dtype), device=hidden_ND.device)
        step = chunk_rows(len(weight_VD), hidden_ND.device.type)
        with torch.autocast(hidden_ND.device.type, enabled=False):
            for start in range(0, len(hidden_ND), step):
                rows = slice(start, start + step)
                products_NV = _products(inputs_ND[rows], table_VD, bias_V).requires_grad_()
                with torch.enable_grad():
                    loss = chunk_loss(products_NV, rows)
                (grad_NV,) = torch.autograd.grad(loss, products_NV)
                total += loss.detach()
                if grad_V is not None:
                    grad_V += grad_NV.sum(0)
                grad_NV = grad_NV.to(dtype)
                torch.mm(grad_NV, table_VD, out=grad_ND[rows])
                if grad_VD is not None:
                    grad_VD += grad_NV.T @ inputs_ND[rows]
        ctx.save_for_backward(grad_ND.to(hidden_ND.dtype), grad_VD, grad_V)
        return total

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        (scale,) = outputs
        scaled = (None if grad is None else grad * scale for grad in ctx.saved_tensors)
        return (*scaled, None, None)


def _products(hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None) -> Tensor:
    products_NV = (hidden_ND @ weight_VD.T).to(_wide(hidden_ND.dtype))
    return products_NV if bias_V is None else products_NV + bias_V.detach()


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
