"""Attention: the heads of one layer, its position encoding, and which tokens it may see."""

import math
from dataclasses import dataclass

from paredown.spec.rotary import Rotary


@dataclass(frozen=True, kw_only=True)
class QueryTemperature:
    """Scales queries by their position p: multiplies them by `1 + beta * ln(1 + floor(p /
    num_positions))` (Llama 4, Ministral 3)."""

    beta: float
    num_positions: int

    def at(self, position: int) -> float:
        """Returns the factor for the queries at `position`."""
        return 1.0 + self.beta * math.log(1.0 + position // self.num_positions)


@dataclass(frozen=True, kw_only=True)
class RelativePositions:
    """Adds a learned number to each score, by head and by the distance of key and query (T5, arXiv
    1910.10683; MPNet). Distances share `num_buckets` buckets: each near one has its own, farther
    ones share more and more, and all from `max_distance` on share the last."""

    num_buckets: int
    max_distance: int


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Attention with grouped heads (arXiv 2305.13245).

    `rotary`     None where positions are part of the embedding, or unknown
    `window`     keys are seen at distances below this; None: at any
    `is_causal`  whether a token sees no later token
    `qkv_bias`, `out_bias`   whether these linear layers have biases
    `scale`      multiplies the scores; None means 1 / sqrt(head_dim)
    `soft_cap`   turns scores into `soft_cap * tanh(score / soft_cap)` (Gemma 2)
    `relative`   adds learned numbers to the scores by distance; layers share them
    `temperature`        scales the queries by their position; None leaves them unchanged
    `norms_span_heads`   the norms of queries and keys cover all heads at once (OLMo 2) instead of
                         each head
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
    relative: RelativePositions | None = None
    temperature: QueryTemperature | None = None
    norms_span_heads: bool = False

    @property
    def query_size(self) -> int:
        """The number of columns of all query heads together."""
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """The number of columns of all key heads together; the value heads have as many."""
        return self.num_kv_heads * self.head_dim

    @property
    def num_heads_per_group(self) -> int:
        """The number of query heads that share one key-value head."""
        return self.num_heads // self.num_kv_heads

    @property
    def score_scale(self) -> float:
        """The factor of the query-key products."""
        return self.head_dim**-0.5 if self.scale is None else self.scale

    def shapes(self, hidden_size: int) -> dict[str, tuple[int, int]]:
        """Returns the shapes (out, in) of q, k, v and o."""
        return {
            "q": (self.query_size, hidden_size),
            "k": (self.kv_size, hidden_size),
            "v": (self.kv_size, hidden_size),
            "o": (hidden_size, self.query_size),
        }
