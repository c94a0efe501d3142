"""Sizes in letters stand for the sizes in numbers, and for no two."""

import pytest
from hypothesis import assume, given, settings

from fakes.random_specs import specs
from fakes.specs import gated, plain
from paredown.cost.polynomial import Polynomial
from paredown.cost.sizes import LEGEND, Sizes, letter_values
from paredown.errors import UnsupportedError
from paredown.spec.mlp import Mlp
from paredown.spec.model import ModelSpec


@given(specs())
@settings(max_examples=60, deadline=None)
def test_letters_have_the_values_of_the_numbers(spec: ModelSpec) -> None:
    assume(spec.is_uniform)
    letters, numbers, values = Sizes.in_letters(spec), Sizes.of(spec), letter_values(spec)
    (layer,) = spec.layer_counts
    pairs: list[tuple[Polynomial, Polynomial]] = [
        (letters.hidden, numbers.hidden),
        (letters.vocabulary, numbers.vocabulary),
    ]
    sizes = [one.attention(layer.attention, spec.hidden_size) for one in (letters, numbers)]
    pairs += [(getattr(sizes[0], name), getattr(sizes[1], name)) for name in ("heads", "query")]
    pairs.append((sizes[0].key_value, sizes[1].key_value))
    if isinstance(layer.mlp, Mlp):
        pairs.append((letters.mlp(layer.mlp), numbers.mlp(layer.mlp)))
    else:
        experts = [one.experts(layer.mlp) for one in (letters, numbers)]
        names = ("num", "num_per_token", "size", "shared")
        pairs += [(getattr(experts[0], name), getattr(experts[1], name)) for name in names]
    for symbolic, number in pairs:
        assert symbolic.value(values) == number.value()
    assert all(f"{letter} " in LEGEND for letter in values)


@given(specs())
@settings(max_examples=60, deadline=None)
def test_a_letter_never_stands_for_two_numbers(spec: ModelSpec) -> None:
    attentions = {
        (one.attention.num_heads, one.attention.num_kv_heads, one.attention.head_dim)
        for one in spec.layers
    }
    dense = {one.mlp for one in spec.layers if isinstance(one.mlp, Mlp)}
    kinds = (attentions, dense, set(spec.expert_kinds), set(spec.windows))
    if max(map(len, kinds)) > 1:
        with pytest.raises(UnsupportedError, match="layers of different sizes"):
            Sizes.in_letters(spec)
    else:
        Sizes.in_letters(spec)


def test_as_few_letters_as_a_model_needs() -> None:
    """Where all heads are as wide as the hidden state and have keys of their own, D says it all."""
    even, grouped = plain(), gated()
    sizes = Sizes.in_letters(even).attention(even.layers[0].attention, even.hidden_size)
    assert (str(sizes.query), str(sizes.key_value)) == ("D", "D")
    sizes = Sizes.in_letters(grouped).attention(grouped.layers[0].attention, grouped.hidden_size)
    assert (str(sizes.query), str(sizes.key_value)) == ("Hd", "Kd")
