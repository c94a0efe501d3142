"""Divergence: by hand, against entropies, and not changed by what changes no probability."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from paredown.evaluate.quality.divergence import kl_divergences, num_agreeing
from paredown.evaluate.quality.perplexity import Predictions, negative_log_likelihoods

PAIRS = hnp.arrays(
    np.float32,
    st.tuples(st.just(2), st.integers(1, 5), st.integers(2, 20)),
    elements=st.floats(-20, 20, width=32),
)


def of_probabilities(*rows: list[float]) -> Predictions:
    return Predictions.of(np.log(np.array(rows)).astype(np.float32))


def test_the_divergence_of_two_coins() -> None:
    """By hand, both ways round; the reference is the first."""
    fair, biased = of_probabilities([0.5, 0.5]), of_probabilities([0.25, 0.75])
    there = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    back = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    assert kl_divergences(fair, biased)[0] == pytest.approx(there, rel=1e-5)
    assert kl_divergences(biased, fair)[0] == pytest.approx(back, rel=1e-5)
    assert there != pytest.approx(back, rel=0.05)


@given(PAIRS, st.floats(-8, 8, width=32))
@settings(max_examples=60, deadline=None)
def test_rows_are_told_apart_by_their_probabilities_alone(
    pair: npt.NDArray[np.float32], shift: float
) -> None:
    reference, model = pair
    found_T = kl_divergences(Predictions.of(reference), Predictions.of(model))
    moved_T = kl_divergences(
        Predictions.of(reference + np.float32(shift)), Predictions.of(model - np.float32(shift))
    )
    assert moved_T == pytest.approx(found_T, rel=1e-2, abs=1e-5)
    order = np.random.default_rng(0).permutation(reference.shape[1])
    mixed_T = kl_divergences(Predictions.of(reference[:, order]), Predictions.of(model[:, order]))
    assert mixed_T == pytest.approx(found_T, rel=1e-5, abs=1e-9)
    assert np.all(kl_divergences(Predictions.of(model), Predictions.of(model)) == 0)


@given(PAIRS)
@settings(max_examples=60, deadline=None)
def test_it_is_what_cross_entropy_has_over_entropy(pair: npt.NDArray[np.float32]) -> None:
    reference, model = Predictions.of(pair[0]), Predictions.of(pair[1])
    num_rows, size = pair[0].shape
    cross_T, entropy_T = np.zeros(num_rows), np.zeros(num_rows)
    for token in range(size):
        own_T = negative_log_likelihoods(reference, [token] * num_rows)
        cross_T += np.exp(-own_T) * negative_log_likelihoods(model, [token] * num_rows)
        entropy_T += np.exp(-own_T) * own_T
    found_T = kl_divergences(reference, model)
    assert found_T == pytest.approx(cross_T - entropy_T, rel=1e-4, abs=1e-5)
    total_variation_T = 0.5 * np.abs(
        np.exp(pair[0] - reference.normalizers_T[:, None])
        - np.exp(pair[1] - model.normalizers_T[:, None])
    ).sum(axis=1)
    # Pinsker's inequality.
    assert np.all(total_variation_T**2 <= found_T / 2 + 1e-5)


def test_a_row_is_measured_whatever_rows_are_beside_it() -> None:
    rng = np.random.default_rng(4)
    reference, model = rng.normal(size=(2, 200, 700)).astype(np.float32)
    whole_T = kl_divergences(Predictions.of(reference), Predictions.of(model))
    for row in (0, 63, 64, 199):
        part = slice(row, row + 1)
        alone_T = kl_divergences(Predictions.of(reference[part]), Predictions.of(model[part]))
        assert alone_T[0] == whole_T[row]


def test_ties_go_to_the_lower_token() -> None:
    first = Predictions.of(np.array([[1, 1, 0], [0, 2, 2], [3, 0, 0]], np.float32))
    second = Predictions.of(np.array([[5, 0, 0], [0, 0, 1], [0, 0, 3]], np.float32))
    assert first.most_likely.tolist() == [0, 1, 0]
    assert num_agreeing(first, second) == num_agreeing(second, first) == 1
