"""Heads, their sizes, and what scores are multiplied with."""

import math
from dataclasses import replace

import pytest
from hypothesis import given

from fakes.random_specs import attentions
from paredown.spec.attention import Attention


@given(attentions())
def test_sizes_are_heads_times_columns(attention: Attention) -> None:
    assert attention.query_size == attention.num_heads * attention.head_dim
    assert attention.kv_size == attention.num_kv_heads * attention.head_dim
    assert attention.num_heads_per_group * attention.kv_size == attention.query_size
    assert set(attention.shapes(16)) == {"q", "k", "v", "o"}


@pytest.mark.parametrize("head_dim", [1, 4, 64, 80, 128])
def test_scores_of_random_vectors_have_unit_variance(head_dim: int) -> None:
    """A sum of `head_dim` products, each of unit variance; unless a scale is given."""
    attention = Attention(num_heads=2, num_kv_heads=1, head_dim=head_dim, rotary=None)
    assert math.isclose(attention.score_scale**2 * head_dim, 1)
    assert replace(attention, scale=0.25).score_scale == 0.25
    assert replace(attention, scale=0.0).score_scale == 0.0
