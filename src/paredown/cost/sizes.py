"""Sizes: the sizes of a model for the formulas of its cost, as numbers or letters."""

from dataclasses import dataclass

from paredown.cost.alike import dense_layers, expert_layers, projections
from paredown.cost.polynomial import Polynomial
from paredown.errors import UnsupportedError
from paredown.spec.attention import Attention
from paredown.spec.experts import Experts
from paredown.spec.mlp import Mlp
from paredown.spec.model import ModelSpec

LEGEND = (
    "D hidden size, H heads, K key-value heads, d columns of a head, F columns of the MLP, "
    "V vocabulary; E experts, k of them for a token, X that have one, I columns of an expert, "
    "J of the shared one"
)


@dataclass(frozen=True, kw_only=True)
class AttentionSizes:
    """`query` and `key_value` count the columns of all heads together."""

    heads: Polynomial
    query: Polynomial
    key_value: Polynomial


@dataclass(frozen=True, kw_only=True)
class ExpertSizes:
    """`shared` is 0 where there is no shared expert."""

    num: Polynomial
    num_per_token: Polynomial
    size: Polynomial
    shared: Polynomial


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """`hidden`, `vocabulary`, and methods for the sizes of layers."""

    hidden: Polynomial
    vocabulary: Polynomial
    is_symbolic: bool

    @classmethod
    def of(cls, spec: ModelSpec) -> "Sizes":
        """Returns the sizes as the model's own numbers."""
        return cls(
            hidden=Polynomial.number(spec.hidden_size),
            vocabulary=Polynomial.number(spec.vocab_size),
            is_symbolic=False,
        )

    @classmethod
    def in_letters(cls, spec: ModelSpec) -> "Sizes":
        """Returns the sizes as letters. Raises UnsupportedError where a letter would stand for two
        numbers."""
        kinds = (projections(spec), dense_layers(spec), expert_layers(spec), spec.windows)
        if any(len(kind) > 1 for kind in kinds):
            raise UnsupportedError(
                "formulas have one letter for a size of all layers",
                seen="layers of different sizes",
                remedy="Leave --symbolic out: numbers are there for any model.",
            )
        return cls(
            hidden=Polynomial.letter("D"), vocabulary=Polynomial.letter("V"), is_symbolic=True
        )

    def attention(self, attention: Attention, hidden_size: int) -> AttentionSizes:
        """Returns the sizes of attention. As letters both are D where all heads together are as
        wide as the hidden state and each has its own keys and values."""
        if not self.is_symbolic:
            return AttentionSizes(
                heads=Polynomial.number(attention.num_heads),
                query=Polynomial.number(attention.query_size),
                key_value=Polynomial.number(attention.kv_size),
            )
        letter = Polynomial.letter
        is_even = attention.query_size == hidden_size
        query = letter("D") if is_even else letter("H") * letter("d")
        is_plain = attention.num_kv_heads == attention.num_heads
        return AttentionSizes(
            heads=letter("H"),
            query=query,
            key_value=query if is_plain else letter("K") * letter("d"),
        )

    def mlp(self, mlp: Mlp) -> Polynomial:
        """Returns the columns between the MLP's halves."""
        return Polynomial.letter("F") if self.is_symbolic else Polynomial.number(mlp.size)

    def experts(self, experts: Experts) -> ExpertSizes:
        """Returns the sizes of a layer's experts."""
        if self.is_symbolic:
            num, num_per_token, size, shared = map(Polynomial.letter, "EkIJ")
        else:
            num, num_per_token, size, shared = map(
                Polynomial.number,
                (experts.num, experts.num_per_token, experts.size, experts.shared_size or 0),
            )
        return ExpertSizes(num=num, num_per_token=num_per_token, size=size, shared=shared)


def letter_values(spec: ModelSpec) -> dict[str, float]:
    """Returns the numbers that the letters of `Sizes.in_letters` stand for in this model."""
    values: dict[str, float] = {"D": spec.hidden_size, "V": spec.vocab_size}
    for layer in spec.layer_counts:
        attention = layer.attention
        values |= {"H": attention.num_heads, "K": attention.num_kv_heads, "d": attention.head_dim}
        if isinstance(layer.mlp, Mlp):
            values["F"] = layer.mlp.size
        else:
            experts = layer.mlp
            values |= {"E": experts.num, "k": experts.num_per_token}
            values |= {"I": experts.size, "J": experts.shared_size or 0}
    return values
