"""Rejection sampling gives the target's distribution, by adding up every outcome."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.engine.sampling.sampler import draw_token
from paredown.engine.speculate.accept import acceptance_probability, rejection_sample, residual
from paredown.kernels.native_sampler import uniform

WEIGHTS = st.lists(st.sampled_from([0.0, 1e-9, 0.1, 0.5, 1.0, 3.0]), min_size=2, max_size=7)


def normalized(weights):
    return np.array(weights) / np.sum(weights)


@st.composite
def pairs(draw):
    p = draw(WEIGHTS.filter(any))
    q = draw(st.lists(st.floats(0, 1), min_size=len(p), max_size=len(p)).filter(any))
    return normalized(p), normalized(q)


@settings(max_examples=400, deadline=None)
@given(pairs())
def test_the_outcomes_add_up_to_the_target(pair):
    p, q = pair
    total = np.zeros(len(p))
    for draft in np.flatnonzero(q):
        accepted = acceptance_probability(p, q, draft)
        assert 0 <= accepted <= 1
        total[draft] += q[draft] * accepted
        if accepted < 1:
            total += q[draft] * (1 - accepted) * residual(p, q, draft)
    assert np.abs(total - p).max() < 1e-12


@settings(max_examples=200, deadline=None)
@given(WEIGHTS.filter(any), st.data())
def test_a_draft_without_a_distribution_is_a_point_mass(weights, data):
    p = normalized(weights)
    draft = data.draw(st.integers(0, len(p) - 1))
    accepted = acceptance_probability(p, None, draft)
    assert accepted == p[draft]
    total = accepted * np.eye(len(p))[draft]
    if accepted < 1:
        total = total + (1 - accepted) * residual(p, None, draft)
    assert np.abs(total - p).max() < 1e-12


@given(pairs(), st.integers(0, 10_000))
def test_what_is_returned_is_possible_and_the_draft_exactly_when_accepted(pair, position):
    p, q = pair
    draft = int(np.flatnonzero(q)[position % np.count_nonzero(q)])
    token = rejection_sample(p, q, draft, seed=5, position=position)
    assert p[token] > 0
    is_accepted = uniform(5, position, 1) < acceptance_probability(p, q, draft)
    assert (token == draft) == is_accepted


def test_draws_follow_the_target_by_chi_square():
    """7 tokens, 20,000 positions; the 99.9 % point for 6 degrees of freedom is 22.5."""
    p = normalized([1, 2, 3, 4, 0, 6, 7])
    q = normalized([7, 6, 5, 4, 3, 2, 1])
    counts = np.zeros(7)
    num_draws, num_accepted = 20_000, 0
    for position in range(num_draws):
        draft = draw_token(q, seed=1, position=position)
        token = rejection_sample(p, q, draft, seed=1, position=position)
        counts[token] += 1
        num_accepted += token == draft
    assert counts[4] == 0
    expected = num_draws * p[p > 0]
    assert ((counts[p > 0] - expected) ** 2 / expected).sum() < 22.5
    overlap = np.minimum(p, q).sum()
    assert num_accepted / num_draws == pytest.approx(overlap, abs=0.015)


def test_equal_distributions_always_accept():
    p = normalized([3, 1, 1])
    for draft in range(3):
        assert acceptance_probability(p, p.copy(), draft) == 1.0


def test_a_residual_of_nothing_is_still_a_distribution():
    """p and q equal but for rounding, p a point mass: there is nothing left to draw from."""
    p, q = np.array([0.0, 1.0]), np.array([0.0, 1.0 + 2**-52])
    assert acceptance_probability(p, q, 1) < 1
    assert residual(p, q, 1).tolist() == [0.0, 1.0]


def test_numbers_beyond_64_bits_are_wrapped_as_the_samplers_are():
    p = normalized([1, 1, 1, 1])
    tokens = [rejection_sample(p, None, 0, seed=3, position=i) for i in range(30)]
    assert tokens == [rejection_sample(p, None, 0, seed=3 + 2**64, position=i) for i in range(30)]
    assert len(set(tokens)) == 4
