"""Sizes: the sizes of a model as the formulas of its cost take them, in numbers or in letters."""

from dataclasses import dataclass

from paredown.cost.polynomial import Polynomial
from paredown.spec.model import ModelSpec

LEGEND = (
    "D hidden size, H heads, K key-value heads, d columns of a head, F columns of the MLP, "
    "V vocabulary; E experts, k of them for a token, X that have one, I columns of an expert, "
    "J of the shared one"
)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """`query` and `key_value` are the columns of all heads together; the last four are 0 without
    experts."""

    hidden: Polynomial
    heads: Polynomial
    query: Polynomial
    key_value: Polynomial
    intermediate: Polynomial
    vocabulary: Polynomial
    experts: Polynomial
    experts_per_token: Polynomial
    expert_intermediate: Polynomial
    shared_intermediate: Polynomial

    @classmethod
    def of(cls, spec: ModelSpec) -> "Sizes":
        number, experts = Polynomial.number, spec.experts
        shared = 0 if experts is None else experts.shared_intermediate_size or 0
        return cls(
            hidden=number(spec.hidden_size),
            heads=number(spec.num_heads),
            query=number(spec.num_heads * spec.head_dim),
            key_value=number(spec.num_kv_heads * spec.head_dim),
            intermediate=number(spec.intermediate_size),
            vocabulary=number(spec.vocab_size),
            experts=number(0 if experts is None else experts.num),
            experts_per_token=number(0 if experts is None else experts.num_per_token),
            expert_intermediate=number(0 if experts is None else experts.intermediate_size),
            shared_intermediate=number(shared),
        )

    @classmethod
    def in_letters(cls, spec: ModelSpec) -> "Sizes":
        """The letters that a model of this make needs: where all heads together are as wide as the
        hidden state, and each has its own keys and values, both are D."""
        letter = Polynomial.letter
        is_even = spec.num_heads * spec.head_dim == spec.hidden_size
        query = letter("D") if is_even else letter("H") * letter("d")
        is_plain = spec.num_kv_heads == spec.num_heads
        return cls(
            hidden=letter("D"),
            heads=letter("H"),
            query=query,
            key_value=query if is_plain else letter("K") * letter("d"),
            intermediate=letter("F"),
            vocabulary=letter("V"),
            experts=letter("E"),
            experts_per_token=letter("k"),
            expert_intermediate=letter("I"),
            shared_intermediate=letter("J"),
        )


def letter_values(spec: ModelSpec) -> dict[str, float]:
    """What the letters of `Sizes.in_letters` stand for in this model."""
    experts = spec.experts
    of_experts: dict[str, float] = {}
    if experts is not None:
        of_experts = {
            "E": experts.num,
            "k": experts.num_per_token,
            "I": experts.intermediate_size,
            "J": experts.shared_intermediate_size or 0,
        }
    return of_experts | {
        "D": spec.hidden_size,
        "H": spec.num_heads,
        "K": spec.num_kv_heads,
        "d": spec.head_dim,
        "F": spec.intermediate_size,
        "V": spec.vocab_size,
    }
