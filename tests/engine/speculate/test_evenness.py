"""What a batch as a whole gains by draft tokens that only some of its requests have."""

import pytest

from paredown.engine.speculate.evenness import Evenness


def rates(*values):
    return dict(enumerate(values))


def test_where_nothing_is_known_or_one_is_alone_all_counts():
    evenness = Evenness()
    assert evenness.value(rates(0.1, 0.9)) == 1.0
    evenness.observe(0, True)
    assert evenness.value(rates(0.1)) == 1.0
    assert evenness.value({}) == 1.0


def test_requests_that_are_alike_are_even_and_one_that_finds_nothing_is_not():
    evenness, values = Evenness(), []
    for _ in range(10):
        for request_id in range(4):
            evenness.observe(request_id, request_id != 3)
        values.append(evenness.value(rates(0.6, 0.6, 0.6, 0.6)))
    assert evenness.value(rates(0.6, 0.6, 0.6)) == 1.0
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.1
    assert evenness.value(rates(0.6, 0.3, 0.6)) == pytest.approx(0.6)


def test_a_request_that_ended_is_forgotten():
    evenness = Evenness()
    for _ in range(20):
        evenness.observe(0, True)
        evenness.observe(1, False)
    evenness.forget(1)
    assert evenness.value(rates(0.5, 0.5)) > 0.5


def test_what_was_found_so_long_ago_that_it_is_nearly_nothing_decides_nothing():
    """Shares of it round to zero before it does."""
    evenness = Evenness()
    evenness.observe(0, True)
    for _ in range(160_000):
        evenness.observe(0, False)
    assert evenness.value({1: 0.5, 2: 0.5}) == 1.0
