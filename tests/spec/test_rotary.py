"""Angles of positions: against Transformers, and by what a scaling must leave as it is."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from paredown.spec.rotary import Rotary

DIMS = st.sampled_from([2, 8, 64, 128])
THETAS = st.sampled_from([100.0, 1e4, 5e5])
LLAMA3 = st.builds(
    Rotary,
    theta=THETAS,
    scaling=st.just("llama3"),
    factor=st.sampled_from([1.0, 2.0, 8.0, 32.0]),
    low_freq_factor=st.sampled_from([1.0, 2.0]),
    high_freq_factor=st.sampled_from([4.0, 8.0]),
    original_max_positions=st.sampled_from([128, 8192]),
)


@given(THETAS, DIMS)
def test_wavelengths_grow_by_the_same_factor_from_two_pi_on(theta: float, head_dim: int) -> None:
    found = Rotary(theta=theta).inverse_frequencies(head_dim)
    assert len(found) == head_dim // 2
    assert found[0] == 1
    for before, after in itertools.pairwise(found):
        assert before / after == pytest.approx(theta ** (2 / head_dim))
    assert found[-1] == pytest.approx(theta ** (2 / head_dim - 1))


@given(THETAS, DIMS, st.floats(1, 64))
def test_linear_scaling_is_slower_everywhere(theta: float, head_dim: int, factor: float) -> None:
    plain = Rotary(theta=theta).inverse_frequencies(head_dim)
    scaled = Rotary(theta=theta, scaling="linear", factor=factor).inverse_frequencies(head_dim)
    assert scaled == pytest.approx([one / factor for one in plain])


@given(LLAMA3, DIMS)
def test_short_waves_stay_and_long_ones_are_stretched(rotary: Rotary, head_dim: int) -> None:
    """In between somewhere in between; never out of order, so that no two waves change places."""
    plain = Rotary(theta=rotary.theta).inverse_frequencies(head_dim)
    scaled = rotary.inverse_frequencies(head_dim)
    for before, after in zip(plain, scaled, strict=True):
        turns = rotary.original_max_positions * before / (2 * math.pi)
        assert before / rotary.factor * (1 - 1e-12) <= after <= before * (1 + 1e-12)
        if turns > rotary.high_freq_factor:
            assert after == before
        elif turns < rotary.low_freq_factor:
            assert after == pytest.approx(before / rotary.factor)
    assert scaled == sorted(scaled, reverse=True)


@given(LLAMA3, DIMS)
def test_they_are_those_of_transformers(rotary: Rotary, head_dim: int) -> None:
    config = LlamaConfig(
        hidden_size=head_dim,
        num_attention_heads=1,
        head_dim=head_dim,
        max_position_embeddings=4 * rotary.original_max_positions,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": rotary.theta,
            "factor": rotary.factor,
            "low_freq_factor": rotary.low_freq_factor,
            "high_freq_factor": rotary.high_freq_factor,
            "original_max_position_embeddings": rotary.original_max_positions,
        },
    )
    expected, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    assert rotary.inverse_frequencies(head_dim) == pytest.approx(expected.tolist(), rel=1e-5)


@pytest.mark.parametrize(("share", "columns"), [(1.0, 80), (0.5, 40), (0.25, 20), (0.34, 27)])
def test_a_share_of_a_head_is_turned_as_a_smaller_head_would_be(share: float, columns: int) -> None:
    rotary = Rotary(theta=1e4, share=share)
    assert rotary.rotated_columns(80) == columns
    assert rotary.inverse_frequencies(80) == Rotary(theta=1e4).inverse_frequencies(columns)
