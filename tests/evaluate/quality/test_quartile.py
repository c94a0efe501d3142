"""The lower quartile against its definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.evaluate.quality.quartile import lower_quartile

TIMES = st.lists(st.integers(0, 20).map(float), min_size=1, max_size=40)


@given(TIMES)
def test_a_quarter_is_no_larger_and_three_quarters_no_smaller(times: list[float]) -> None:
    found = lower_quartile(times)
    assert found in times
    assert 4 * sum(one <= found for one in times) >= len(times)
    assert 4 * sum(one >= found for one in times) >= 3 * len(times)


@given(TIMES.filter(lambda times: len(times) >= 5), st.floats(100, 1e6))
def test_what_held_up_some_steps_does_not_move_it(times: list[float], late: float) -> None:
    """Up to half of them, and one that was lucky, which the minimum would have been."""
    ordered = sorted(times)
    held_up = ordered[: len(ordered) - len(ordered) // 2] + [late] * (len(ordered) // 2)
    assert lower_quartile(held_up) == lower_quartile(times)
    assert lower_quartile([-1.0, *ordered[1:]]) == lower_quartile(times)


@pytest.mark.parametrize(("num", "place"), [(1, 0), (4, 0), (5, 1), (8, 1), (9, 2), (100, 24)])
def test_its_place_among_so_many(num: int, place: int) -> None:
    assert lower_quartile([float(one) for one in reversed(range(num))]) == place
