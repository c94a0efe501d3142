"""What a call of a proposer takes, by the length of the longest draft."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.engine.speculate.round_cost import RoundCost


def cost_of(seconds):
    cost = RoundCost()
    for k, value in seconds.items():
        for _ in range(3):
            cost.observe(k, value)
    return cost


def test_between_lengths_and_beyond_them_the_seconds_are_on_a_line():
    assert cost_of({2: 4.0, 4: 6.0}).estimates(6) == [2, 4, 5, 6, 7, 8]
    assert cost_of({2: 4.0, 4: 6.0}).estimates(3) == [2, 4, 5]


def test_one_length_alone_is_extended_by_half_its_mean():
    assert cost_of({2: 4.0}).estimates(4) == [2, 4, 5, 6]


def test_nothing_known_takes_no_time_and_one_call_tells_nothing():
    cost = RoundCost()
    cost.observe(1, 5.0)
    assert cost.estimates(3) == [0, 0, 0]
    assert cost.estimates(0) == []


@given(st.dictionaries(st.integers(1, 16), st.floats(1e-6, 1), min_size=1), st.integers(0, 20))
def test_what_was_measured_is_what_is_estimated(seconds, longest):
    found = cost_of(seconds).estimates(longest)
    assert len(found) == longest
    for k, value in seconds.items():
        assert k > longest or found[k - 1] == pytest.approx(value)
