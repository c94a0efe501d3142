"""The Llama decoder as it is trained: float32 master weights, bfloat16 arithmetic.

Projections with the same input are one matrix here (query, key and value; gate and up), because a
CPU computes one wide product faster than several narrow ones. `huggingface_tensors` splits them
again.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools.train.attention import causal_attention
from tools.train.shapes import Shape


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x (..., in) times weight (out, in), in bfloat16."""
    return functional.linear(x, weight.to(torch.bfloat16))


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last dimension, computed in float32."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * weight).to(x.dtype)


def rotary_tables(length: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines (length, head_dim / 2), float32."""
    frequencies = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    return angles.cos().float(), angles.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of x (rows, length, heads, head_dim); first and second half are a pair."""
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = cos[None, :, None], sin[None, :, None]
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return turned.to(x.dtype)


class Block(nn.Module):
    """One decoder layer: attention, then the gated MLP, each behind its norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.query_width = shape.heads * shape.head_dim
        self.kv_width = shape.kv_heads * shape.head_dim
        self.attention_norm = nn.Parameter(torch.ones(shape.hidden))
        self.mlp_norm = nn.Parameter(torch.ones(shape.hidden))
        self.qkv_rows = [self.query_width, self.kv_width, self.kv_width]
        self.qkv = nn.Parameter(torch.randn(sum(self.qkv_rows), shape.hidden) * shape.hidden**-0.5)
        self.gate_up = nn.Parameter(
            torch.randn(2 * shape.intermediate, shape.hidden) * shape.hidden**-0.5
        )
        # Both branches start as zero, so that the residual stream starts as the embedding.
        self.out = nn.Parameter(torch.zeros(shape.hidden, self.query_width))
        self.down = nn.Parameter(torch.zeros(shape.hidden, shape.intermediate))

    def attention(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Causal attention with grouped queries on x (rows, length, hidden)."""
        shape = self.shape
        rows, length, _ = x.shape
        q, k, v = torch.split_with_sizes(linear(x, self.qkv), self.qkv_rows, -1)
        q = rotate(q.view(rows, length, shape.heads, shape.head_dim), cos, sin)
        k = rotate(k.view(rows, length, shape.kv_heads, shape.head_dim), cos, sin)
        v = v.view(rows, length, shape.kv_heads, shape.head_dim)
        return linear(causal_attention(q, k, v), self.out)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        eps = self.shape.norm_eps
        x = x + self.attention(rms_norm(x, self.attention_norm, eps), cos, sin)
        gate, up = linear(rms_norm(x, self.mlp_norm, eps), self.gate_up).chunk(2, dim=-1)
        return x + linear(functional.silu(gate) * up, self.down)


class Decoder(nn.Module):
    """The decoder up to the last norm; `loss.py` turns its output into a loss."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Parameter(torch.randn(shape.vocab, shape.hidden) * 0.02)
        self.blocks = nn.ModuleList([Block(shape) for _ in range(shape.layers)])
        self.final_norm = nn.Parameter(torch.ones(shape.hidden))
        cos, sin = rotary_tables(shape.context, shape.head_dim, shape.rope_theta)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Hidden states (rows, length, hidden) in bfloat16 of token ids (rows, length)."""
        length = ids.shape[1]
        x = functional.embedding(ids, self.embedding).to(torch.bfloat16)
        for block in self.blocks:
            x = block(x, self.cos[:length], self.sin[:length])
        return rms_norm(x, self.final_norm, self.shape.norm_eps)

    def stacked_matrices(self) -> list[tuple[Tensor, list[int]]]:
        """Each hidden matrix with the row counts of the projections stacked in it."""
        hidden, intermediate = self.shape.hidden, self.shape.intermediate
        found: list[tuple[Tensor, list[int]]] = []
        for block in self.blocks:
            assert isinstance(block, Block)
            found.append((block.qkv, block.qkv_rows))
            found.append((block.out, [hidden]))
            found.append((block.gate_up, [intermediate, intermediate]))
            found.append((block.down, [hidden]))
        return found

    def other_parameters(self) -> list[Tensor]:
        """The embedding and the norms."""
        matrices = {id(weight) for weight, _ in self.stacked_matrices()}
        return [p for p in self.parameters() if id(p) not in matrices]

    def huggingface_tensors(self) -> dict[str, Tensor]:
        """The tensors of LlamaForCausalLM by name, bfloat16; the tied head is left out."""
        named: dict[str, Tensor] = {
            "model.embed_tokens.weight": self.embedding,
            "model.norm.weight": self.final_norm,
        }
        for index, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            q, k, v = torch.split_with_sizes(block.qkv, block.qkv_rows)
            gate, up = block.gate_up.chunk(2)
            parts: dict[str, Tensor] = {
                "input_layernorm": block.attention_norm,
                "post_attention_layernorm": block.mlp_norm,
                "self_attn.q_proj": q,
                "self_attn.k_proj": k,
                "self_attn.v_proj": v,
                "self_attn.o_proj": block.out,
                "mlp.gate_proj": gate,
                "mlp.up_proj": up,
                "mlp.down_proj": block.down,
            }
            for name, tensor in parts.items():
                named[f"model.layers.{index}.{name}.weight"] = tensor
        return {
            name: tensor.detach().to(torch.bfloat16).contiguous() for name, tensor in named.items()
        }
