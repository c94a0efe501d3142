"""Which recipes are tried when none are named."""

from fakes.specs import changed
from paredown.compress.recipe_names import find_recipe
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.optimize.recipes import (
    DEFAULT_FORMATS,
    METHODS,
    MIN_OUTPUT_SHARE,
    default_search,
    output_share,
)


def test_the_output_layer_of_the_default_model_is_worth_quantizing() -> None:
    spec = Checkpoint.open(resolve_model(None)).spec
    search = default_search(spec)
    head = 2 * spec.vocab_size * spec.hidden_size
    linear = spec.num_linear_parameters() * 4.125 / 8
    assert search.output_share == output_share(spec) == head / (head + linear)
    assert 0.6 < search.output_share < 0.7
    first = DEFAULT_FORMATS + METHODS
    assert search.recipes[: len(first)] == first
    heads = [find_recipe(name) for name in search.recipes[len(first) :]]
    assert "int4-g128-head-int8" in [recipe.name for recipe in heads]
    assert all(recipe.linear.symmetric and recipe.linear.is_integer for recipe in heads)
    assert "was tried: in bf16 it is 63% of the weights" in search.note


def test_a_small_output_layer_is_left_alone() -> None:
    """A 13-billion-parameter Llama 2."""
    spec = changed(
        Checkpoint.open(resolve_model(None)).spec,
        hidden_size=5120,
        num_layers=40,
        num_heads=40,
        num_kv_heads=40,
        head_dim=128,
        intermediate_size=13824,
        vocab_size=32000,
    )
    search = default_search(spec)
    assert search.output_share < MIN_OUTPUT_SHARE
    assert search.recipes == DEFAULT_FORMATS + METHODS
    assert "was not tried" in search.note
