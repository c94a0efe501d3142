"""Attention: the heads of one layer, how they know positions, and what they may see."""

import math
from dataclasses import dataclass

from paredown.spec.rotary import Rotary


@dataclass(frozen=True, kw_only=True)
class QueryTemperature:
    """The growth of queries with their position p: they are multiplied with
    `1 + beta * ln(1 + floor(p / num_positions))` (Llama 4, Ministral 3)."""

    beta: float
    num_positions: int

    def at(self, position: int) -> float:
        """The factor of the queries of that position."""
        return 1.0 + self.beta * math.log(1.0 + position // self.num_positions)


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Attention with grouped heads (arXiv 2305.13245).

    `rotary`     None where positions are part of the embedding, or unknown
    `window`     a token sees so many tokens, itself among them; None: all before it
    `is_causal`  a token sees none behind it
    `qkv_bias`, `out_bias`   whether these linear layers have biases
    `scale`      of the scores; None is one over the root of `head_dim`
    `soft_cap`   scores become `soft_cap * tanh(score / soft_cap)` (Gemma 2)
    `temperature`        grows the queries with their position; None: they stay as they are
    `norms_span_heads`   norms of queries and of keys are taken over all heads at once (OLMo 2), not
                         over each
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary: Rotary | None
    window: int | None = None
    is_causal: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    scale: float | None = None
    soft_cap: float | None = None
    temperature: QueryTemperature | None = None
    norms_span_heads: bool = False

    @property
    def query_size(self) -> int:
        """Columns of all query heads side by side."""
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Columns of all key heads side by side, and of all value heads."""
        return self.num_kv_heads * self.head_dim

    @property
    def num_heads_per_group(self) -> int:
        """Query heads that share a head of keys and values."""
        return self.num_heads // self.num_kv_heads

    @property
    def score_scale(self) -> float:
        """What a product of a query and a key is multiplied with."""
        return self.head_dim**-0.5 if self.scale is None else self.scale

    def shapes(self, hidden_size: int) -> dict[str, tuple[int, int]]:
        """(out, in) of q, k, v and o."""
        return {
            "q": (self.query_size, hidden_size),
            "k": (self.kv_size, hidden_size),
            "v": (self.kv_size, hidden_size),
            "o": (hidden_size, self.query_size),
        }
