"""Numbers in steps: near the truth, and silent about one request."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.serve.watch.coarse import CoarseHistogram, CoarseNumber, CoarseNumbers


@given(st.lists(st.integers(0, 1000), min_size=1), st.integers(1, 64))
def test_what_is_shown_is_a_multiple_and_less_than_two_steps_off(values, step):
    number = CoarseNumber(step)
    for value in values:
        shown = number.show(value)
        assert shown % step == 0
        assert shown - step <= value < shown + 2 * step + 1


def test_a_counter_never_falls():
    number, last = CoarseNumber(7), 0.0
    for value in range(500):
        shown = number.show(value)
        assert shown >= last
        last = shown
    assert last > 480


@pytest.mark.parametrize("start", range(0, 640, 37))
def test_one_more_is_seen_seldom_wherever_one_stands(start):
    """Also when all else stands still and was brought there on purpose."""
    rng, num_seen = random.Random(start), 0
    for _ in range(2000):
        number = CoarseNumber(64, rng.randrange)
        for value in range(start + 1):
            before = number.show(value)
        num_seen += number.show(start + 1) != before
    # One in 64 is 31; where nothing has moved for a step it is never.
    assert num_seen < 80


def test_numbers_are_apart():
    numbers = CoarseNumbers()
    assert numbers.show("a", 1000, 10) == 1000
    assert numbers.show("b", 3, 10) == 0
    assert numbers.show("a", 1001, 10) == 1000


@pytest.mark.parametrize("start", range(0, 640, 97))
def test_one_more_in_a_histogram_is_seen_seldom_wherever_one_stands(start):
    rng, num_seen = random.Random(start), 0
    for _ in range(2000):
        histogram = CoarseHistogram(64, rng.randrange)
        for count in range(start + 1):
            before = histogram.show([0, count], count / 2)
        num_seen += histogram.show([1, start + 1], 9.0) != before
    assert num_seen < 80


def test_a_histogram_is_shown_whole_as_it_was_at_one_moment():
    histogram, moments = CoarseHistogram(8), [([0, 0], 0.0)]
    for count in range(200):
        moments.append(([count // 2, count], count / 4))
        counts, sum_ = histogram.show(*moments[-1])
        assert (counts, sum_) in moments
        assert count - counts[-1] <= 16
    assert counts[-1] > 180
