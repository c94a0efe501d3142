"""Requests start at most so often, whenever they come."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.distill.black_box.request_rate import RequestRate
from paredown.errors import ConfigError


@given(
    st.floats(0.5, 600), st.lists(st.floats(0, 20), min_size=1, max_size=60), st.floats(0.01, 50)
)
def test_no_minute_has_more(per_minute, gaps, pause_s) -> None:
    rate = RequestRate(per_minute)
    now_s = 1000.0
    starts = []
    for number, gap_s in enumerate(gaps):
        now_s += gap_s
        if number == 30:
            rate.pause(now_s, pause_s)
        starts.append(rate.take_turn(now_s))
        assert starts[-1] >= now_s
    for at, start in enumerate(starts):
        within = [one for one in starts[at:] if one - start < 60.0 - 1e-6]
        assert len(within) <= math.ceil(per_minute)


def test_nobody_waits_without_a_limit_but_in_a_pause() -> None:
    rate = RequestRate(None)
    assert [rate.take_turn(5.0) for _ in range(3)] == [5.0] * 3
    rate.pause(5.0, 7.0)
    rate.pause(5.0, 2.0)
    assert rate.take_turn(6.0) == 12.0


def test_a_pause_puts_off_the_turns_that_lie_in_it() -> None:
    rate = RequestRate(6)
    turns = [rate.take_turn(5.0) for _ in range(3)]
    assert turns == [5.0, 15.0, 25.0]
    assert not any(map(rate.is_held, turns))
    rate.pause(5.0, 20.0)
    assert [rate.is_held(one) for one in turns] == [True, True, False]
    assert [rate.take_turn(15.0) for _ in range(2)] == [35.0, 45.0]


@pytest.mark.parametrize("per_minute", [0, -1, math.inf, math.nan])
def test_a_rate_that_lets_nothing_start_is_refused(per_minute) -> None:
    with pytest.raises(ConfigError, match="may ever start"):
        RequestRate(per_minute)
