"""Perplexity by its closed forms: what is uniform, what is certain, and what shifts nothing."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from paredown.evaluate.quality.perplexity import (
    Predictions,
    bits_per_byte,
    log_normalizers,
    negative_log_likelihoods,
    perplexity,
)

ROWS = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 6), st.integers(2, 30)),
    elements=st.floats(-50, 50, width=32),
)


@pytest.mark.parametrize("size", [1, 2, 50, 5000])
def test_equal_logits_are_as_perplexing_as_there_are_tokens(size: int) -> None:
    for level in (-1000.0, 0.0, 3.5, 1000.0):
        predictions = Predictions.of(np.full((4, size), level, np.float32))
        nll_T = negative_log_likelihoods(predictions, [0, size - 1, size // 2, 0])
        assert nll_T == pytest.approx([math.log(size)] * 4, abs=1e-6)
        assert perplexity(float(nll_T.sum()), 4) == pytest.approx(size, rel=1e-6)


@given(ROWS, st.integers(-8, 8))
@settings(max_examples=50, deadline=None)
def test_what_is_added_to_a_row_changes_no_probability(
    logits_TV: npt.NDArray[np.float32], power: int
) -> None:
    """A normalizer rises by as much, lies above the largest logit, and by ln V at most."""
    shift = np.float32(2.0**power)
    largest_T = logits_TV.max(axis=1).astype(np.float64)
    plain_T, moved_T = log_normalizers(logits_TV), log_normalizers(logits_TV + shift)
    assert np.allclose(moved_T - plain_T, shift, atol=1e-4)
    assert np.all(plain_T >= largest_T)
    assert np.all(plain_T <= largest_T + math.log(logits_TV.shape[1]) + 1e-6)


@given(ROWS)
@settings(max_examples=50, deadline=None)
def test_probabilities_of_all_tokens_are_one(logits_TV: npt.NDArray[np.float32]) -> None:
    predictions, num_rows = Predictions.of(logits_TV), len(logits_TV)
    total_T = sum(
        np.exp(-negative_log_likelihoods(predictions, [token] * num_rows))
        for token in range(logits_TV.shape[1])
    )
    assert total_T == pytest.approx(np.ones(num_rows), rel=1e-5)


@given(ROWS)
@settings(max_examples=50, deadline=None)
def test_the_likeliest_token_is_the_first_of_the_largest(
    logits_TV: npt.NDArray[np.float32],
) -> None:
    predictions = Predictions.of(logits_TV)
    best_T = negative_log_likelihoods(predictions, predictions.most_likely.tolist())
    for row, (token, best) in enumerate(zip(predictions.most_likely, best_T, strict=True)):
        assert logits_TV[row, token] == max(logits_TV[row])
        assert token == logits_TV[row].tolist().index(max(logits_TV[row].tolist()))
        log_p = logits_TV[row].astype(np.float64) - predictions.normalizers_T[row]
        assert best == pytest.approx(-max(log_p))


@given(st.floats(0, 1e4), st.integers(1, 10_000), st.integers(1, 10))
def test_perplexity_is_that_of_the_mean_whatever_the_length(
    nll: float, num_tokens: int, times: int
) -> None:
    one = perplexity(nll, num_tokens)
    assert one >= 1.0
    assert perplexity(times * nll, times * num_tokens) == pytest.approx(one)
    assert perplexity(nll, num_tokens + 1) <= one


def test_the_largest_perplexity_before_infinity() -> None:
    assert perplexity(699.0, 1) == pytest.approx(math.exp(699))
    assert perplexity(700.0, 1) == math.inf
    assert math.isnan(perplexity(math.nan, 3))


@given(st.floats(0, 1e6), st.integers(1, 10**6))
def test_bits_are_nats_over_the_logarithm_of_two(nll: float, num_bytes: int) -> None:
    """A byte that is one of 256 alike costs 8 bits."""
    assert bits_per_byte(math.log(256) * num_bytes, num_bytes) == pytest.approx(8)
    assert bits_per_byte(nll, num_bytes) * num_bytes * math.log(2) == pytest.approx(nll)
