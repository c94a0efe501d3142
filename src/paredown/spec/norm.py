"""Norm and Norms: the normalizations of a layer, and the name of each role."""

from dataclasses import dataclass, fields
from typing import Literal

NormKind = Literal["rms", "layer"]


@dataclass(frozen=True, kw_only=True)
class Norm:
    """A normalization over the last dimension. It multiplies by `weight + offset`: Gemma stores
    weights minus one. LayerNorm also adds a bias, unless it is not `is_biased` (ModernBERT)."""

    kind: NormKind
    eps: float
    offset: float = 0.0
    is_biased: bool = True

    @property
    def has_bias(self) -> bool:
        return self.kind == "layer" and self.is_biased

    @property
    def parts(self) -> tuple[str, ...]:
        """The vectors that the norm stores."""
        return ("weight", "bias") if self.has_bias else ("weight",)


@dataclass(frozen=True, kw_only=True)
class Norms:
    """The norms of a layer by their place; None where there is none.

    `attention`, `cross`, `mlp`        on the input of attention, cross-attention and MLP
    `q`, `k`                           on queries and keys before rotation, for each head or for all
                                       heads at once (`Attention.norms_span_heads`)
    `attention_output`, `mlp_output`   on their outputs before they are added (Gemma 2, OLMo 2)
    `attention_sum`, `mlp_sum`         on the sums after they are added (post-norm, BERT)
    """

    attention: Norm | None = None
    cross: Norm | None = None
    mlp: Norm | None = None
    q: Norm | None = None
    k: Norm | None = None
    attention_output: Norm | None = None
    mlp_output: Norm | None = None
    attention_sum: Norm | None = None
    mlp_sum: Norm | None = None

    def by_role(self) -> dict[str, Norm]:
        """Returns the norms that exist: "attention_norm", "mlp_norm", "q_norm", ..."""
        found = {f"{place.name}_norm": getattr(self, place.name) for place in fields(self)}
        return {role: norm for role, norm in found.items() if norm is not None}


# Every role that a layer's norm may have.
NORM_ROLES = tuple(f"{place.name}_norm" for place in fields(Norms))
