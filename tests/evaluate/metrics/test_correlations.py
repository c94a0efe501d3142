"""Pearson and Spearman correlations are their formulas, with ties and at the edges of floats."""

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from paredown.evaluate.metrics.pearson import pearson
from paredown.evaluate.metrics.spearman import average_ranks, spearman
from references import metrics as slow

# Few distinct numbers, so that most draws have ties.
PAIRS = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=25)


@given(PAIRS)
def test_both_are_their_formulas(pairs: list[tuple[int, int]]) -> None:
    x, y = (list(side) for side in zip(*pairs, strict=True))
    ours = pearson(np.array(x, float), np.array(y, float))
    of_ranks = spearman(np.array(x, float), np.array(y, float))
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert math.isnan(ours)
        assert math.isnan(of_ranks)
        return
    assert ours == pytest.approx(
        slow.pearson([Fraction(a) for a in x], [Fraction(b) for b in y]), abs=1e-12
    )
    expected = slow.pearson(slow.ranks(x), slow.ranks(y))
    assert of_ranks == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=20))
def test_equal_numbers_share_the_mean_of_their_ranks(numbers: list[int]) -> None:
    assert average_ranks(np.array(numbers, float)).tolist() == [
        float(rank) for rank in slow.ranks(numbers)
    ]


@given(PAIRS, st.floats(0.1, 10), st.floats(-5, 5))
def test_order_is_all_that_spearman_sees(
    pairs: list[tuple[int, int]], factor: float, shift: float
) -> None:
    x, y = (np.array(side, float) for side in zip(*pairs, strict=True))
    stretched = spearman(np.exp(x) * factor + shift, y)
    assert stretched == pytest.approx(spearman(x, y), abs=1e-12, nan_ok=True)


def test_they_are_those_of_scipy() -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(size=300), random.integers(0, 6, 300).astype(float)
    assert pearson(x, y) == pytest.approx(scipy.stats.pearsonr(x, y).statistic)
    assert spearman(x, y) == pytest.approx(scipy.stats.spearmanr(x, y).statistic)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_squares_of_extreme_numbers_stay_in_range(size: float) -> None:
    x = np.array([1.0, 2.0, 4.0])
    assert pearson(x * size, x) == pytest.approx(1.0)
    assert pearson(-x * size, x) == pytest.approx(-1.0)


def test_a_number_that_is_none_has_no_rank() -> None:
    assert math.isnan(spearman(np.array([1.0, np.nan, 3.0]), np.array([1.0, 2.0, 3.0])))
    assert math.isnan(pearson(np.array([1.0]), np.array([2.0])))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_has_no_line(bad: float) -> None:
    assert math.isnan(pearson(np.array([1.0, bad, 3.0]), np.array([1.0, 2.0, 4.0])))
    assert math.isnan(pearson(np.array([1.0, 2.0, 4.0]), np.array([1.0, bad, 3.0])))


def test_single_precision_is_summed_in_double() -> None:
    x = np.linspace(1000, 1001, 4001, dtype=np.float32)
    assert pearson(x, x) == pytest.approx(1.0, abs=1e-12)
