"""Drawn lengths against the distributions that they are said to have."""

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.errors import ConfigError
from paredown.plan.lengths import MAX_TOKENS, Lengths, parse_lengths

tokens = st.integers(1, MAX_TOKENS)
NUM_DRAWN = 20_000


def drawn(lengths: Lengths, number: int = NUM_DRAWN) -> list[int]:
    rng = random.Random(11)
    return [lengths.draw(rng) for _ in range(number)]


@given(tokens)
def test_a_number_is_that_number_always(number: int) -> None:
    found = parse_lengths(f" {number} ")
    assert found == parse_lengths(f"{number}-{number}")
    assert set(drawn(found, 3)) == {number}
    assert found.expected == number
    assert found.name == str(number)


@given(tokens, tokens)
def test_a_range_has_its_ends_and_its_name(one: int, other: int) -> None:
    low, high = sorted((one, other))
    found = parse_lengths(f"{low}-{high}")
    assert (found.low, found.high, found.mean) == (low, high, None)
    assert all(low <= length <= high for length in drawn(found, 20))
    assert 2 * found.expected == low + high
    assert parse_lengths(found.name) == found


def test_every_length_of_a_range_is_as_likely_as_another() -> None:
    lengths = drawn(parse_lengths("5-12"))
    counts = [lengths.count(length) for length in range(5, 13)]
    assert sum(counts) == NUM_DRAWN
    expected = NUM_DRAWN / 8
    # Chi squared with 7 degrees of freedom is above 24.3 once in a thousand times.
    assert sum((count - expected) ** 2 / expected for count in counts) < 24.3


@pytest.mark.parametrize("variation", [0.25, 1.0])
def test_a_mean_is_that_of_a_log_normal_distribution(variation: float) -> None:
    """The mean, the standard deviation in means, and the median, exp(mu)."""
    lengths = drawn(Lengths(low=1, high=MAX_TOKENS, mean=2000, variation=variation))
    mean = statistics.fmean(lengths)
    assert mean == pytest.approx(2000, rel=0.03)
    assert statistics.stdev(lengths) / mean == pytest.approx(variation, rel=0.1)
    median = 2000 / math.sqrt(1 + variation**2)
    assert statistics.median(lengths) == pytest.approx(median, rel=0.03)


def test_a_log_normal_length_is_cut_off_at_both_ends() -> None:
    found = parse_lengths("~100", limit=150)
    lengths = drawn(found)
    assert max(lengths) == 150
    assert lengths.count(150) > NUM_DRAWN / 10
    assert min(drawn(parse_lengths("~1"))) == 1
    assert (found.expected, found.name) == (100, "~100")
    assert parse_lengths(found.name, limit=150) == found
    # A mean above the limit is taken at its word.
    assert parse_lengths("~100", limit=10).high == 100


@pytest.mark.parametrize(
    "text", ["", "0", "-5", "5-2", "1e9", "~", "~5-9", "99999999999", "5.5", str(MAX_TOKENS + 1)]
)
def test_senseless_lengths(text: str) -> None:
    with pytest.raises(ConfigError, match="not a number of tokens"):
        parse_lengths(text)
