"""Norm and Norms: the normalizations of a layer, each role named once."""

from dataclasses import dataclass, fields
from typing import Literal

NormKind = Literal["rms", "layer"]


@dataclass(frozen=True, kw_only=True)
class Norm:
    """A normalization over the last dimension. It multiplies with `weight + offset`: Gemma stores
    its weights less one. LayerNorm adds a bias too."""

    kind: NormKind
    eps: float
    offset: float = 0.0

    @property
    def has_bias(self) -> bool:
        return self.kind == "layer"

    @property
    def parts(self) -> tuple[str, ...]:
        """The vectors that it has."""
        return ("weight", "bias") if self.has_bias else ("weight",)


@dataclass(frozen=True, kw_only=True)
class Norms:
    """The norms of a layer by their place, None where there is none.

    `attention`, `mlp`                 of what the two read
    `q`, `k`                           of queries and of keys before rotation, each head by itself
                                       or all at once (`Attention.norms_span_heads`)
    `attention_output`, `mlp_output`   of what the two give, before it is added (Gemma 2, OLMo 2)
    """

    attention: Norm | None = None
    mlp: Norm | None = None
    q: Norm | None = None
    k: Norm | None = None
    attention_output: Norm | None = None
    mlp_output: Norm | None = None

    def by_role(self) -> dict[str, Norm]:
        """The norms that there are: "attention_norm", "mlp_norm", "q_norm", ..."""
        found = {f"{place.name}_norm": getattr(self, place.name) for place in fields(self)}
        return {role: norm for role, norm in found.items() if norm is not None}


# Every role that a layer's norm may have.
NORM_ROLES = tuple(f"{place.name}_norm" for place in fields(Norms))
