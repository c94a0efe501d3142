"""Fits of a few coefficients: against NumPy, and by the conditions of the best one."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from paredown.cost.least_squares import least_squares, quadratic_fit

SEEDS = st.integers(0, 2**20)


def problem(seed: int, num_rows: int, num_columns: int, spread: float) -> tuple:
    """Columns of very different sizes, as seconds and bytes are."""
    rng = np.random.default_rng(seed)
    rows = rng.random((num_rows, num_columns)) * 10.0 ** rng.uniform(-spread, spread, num_columns)
    weights = rng.uniform(0.5, 2.0, num_rows)
    return rng, rows, weights


@given(SEEDS, st.integers(1, 4), st.floats(0, 4))
@settings(max_examples=60, deadline=None)
def test_coefficients_that_made_the_targets_are_found(
    seed: int, num_columns: int, spread: float
) -> None:
    rng, rows, weights = problem(seed, 4 * num_columns, num_columns, spread)
    truth = rng.uniform(0.1, 1.0, num_columns) / rows.max(axis=0)
    found = least_squares(rows.tolist(), (rows @ truth).tolist(), weights.tolist())
    assert found == pytest.approx(truth.tolist(), rel=1e-4)


@given(SEEDS, st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_where_nothing_is_negative_it_is_numpys(seed: int, num_columns: int) -> None:
    rng, rows, weights = problem(seed, 5 * num_columns, num_columns, 1.0)
    targets = rows @ rng.uniform(0.2, 1.0, num_columns) * rng.uniform(0.9, 1.1, len(rows))
    expected = np.linalg.lstsq(rows * weights[:, None], targets * weights, rcond=None)[0]
    assume(expected.min() > 1e-3 * expected.max())
    found = least_squares(rows.tolist(), targets.tolist(), weights.tolist())
    assert found == pytest.approx(expected.tolist(), rel=1e-4)


@given(SEEDS, st.integers(1, 5))
@settings(max_examples=80, deadline=None)
def test_no_step_within_what_is_allowed_makes_it_better(seed: int, num_columns: int) -> None:
    """Karush, Kuhn and Tucker: a coefficient above 0 has no slope, one at 0 rises the error."""
    rng, rows, weights = problem(seed, 3 * num_columns, num_columns, 1.0)
    targets = rng.normal(size=len(rows))
    found = np.array(least_squares(rows.tolist(), targets.tolist(), weights.tolist()))
    assert found.min() >= 0
    scaled = rows * weights[:, None]
    residual = scaled @ found - targets * weights
    slopes = scaled.T @ residual / np.linalg.norm(scaled, axis=0)
    assert slopes.min() > -1e-6
    assert np.abs(slopes[found > 0]).max(initial=0) < 1e-6


def test_a_column_of_nothing_gets_nothing() -> None:
    assert least_squares([(1.0, 0.0), (2.0, 0.0)], [3.0, 6.0], [1.0, 1.0]) == pytest.approx([3, 0])
    assert least_squares([(0.0,), (0.0,)], [3.0, 6.0], [1.0, 1.0]) == [0.0]


def test_weights_say_which_row_counts() -> None:
    """A mean, weighted by squares."""
    (found,) = least_squares([(1.0,), (1.0,)], [10.0, 20.0], [3.0, 1.0])
    assert found == pytest.approx((9 * 10 + 20) / 10)


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(0.1, 10), st.floats(1e-9, 1e3))
@settings(max_examples=40, deadline=None)
def test_a_parabola_is_found_in_any_unit(a: float, b: float, c: float, unit: float) -> None:
    points = [(x / 4, unit * (a + b * x / 4 + c * x * x / 16)) for x in range(1, 12)]
    assert quadratic_fit(points) == pytest.approx((a * unit, b * unit, c * unit), rel=1e-3)


def test_errors_of_a_parabola_are_relative() -> None:
    """The point near nothing is met as well as the one far off: their ratio is the same."""
    a, b, c = quadratic_fit([(1.0, 1.0), (1.0, 2.0), (1000.0, 1e6), (1000.0, 2e6)])
    near, far = a + b + c, a + 1e3 * b + 1e6 * c
    assert near == pytest.approx(1.2, rel=1e-3)
    assert far == pytest.approx(1.2e6, rel=1e-3)


def test_least_squares_keeps_coefficients_above_zero() -> None:
    rows = [(1.0, float(x)) for x in range(1, 6)]
    falling = [10.0 - x for x in range(1, 6)]
    constant, slope = least_squares(rows, falling, [1.0] * 5)
    assert slope == 0
    assert constant == pytest.approx(7.0)


def test_quadratic_fit_finds_its_own() -> None:
    points = [(x, 3e-6 + 2e-9 * x + 5e-12 * x * x) for x in (128.0, 256.0, 512.0, 1024.0, 2048.0)]
    assert quadratic_fit(points) == pytest.approx((3e-6, 2e-9, 5e-12), rel=1e-4)


@pytest.mark.parametrize(
    ("rows", "targets"),
    [
        ([[3, 2, 2], [2, 3, 1], [2, 0, 3], [1, 3, 0]], [4, 1, 5, 1]),
        ([[3, 1, 2], [1, 1, 2], [0, 0, 2], [2, 3, 0]], [4, 5, 2, 4]),
    ],
)
def test_a_coefficient_that_came_first_may_leave_again(
    rows: list[list[float]], targets: list[float]
) -> None:
    """What would be below 0 beside the others is 0, as in the best of all choices of columns."""
    found = least_squares(rows, targets, [1.0] * len(rows))
    matrix, wanted, best = np.array(rows, float), np.array(targets, float), np.inf
    for chosen in itertools.product((False, True), repeat=3):
        own = np.linalg.lstsq(matrix[:, chosen], wanted, rcond=None)[0] if any(chosen) else []
        if all(one >= 0 for one in own):
            best = min(best, ((matrix[:, chosen] @ np.array(own) - wanted) ** 2).sum())
    assert min(found) >= 0
    assert ((matrix @ np.array(found) - wanted) ** 2).sum() == pytest.approx(best)
