"""Where requests come from: batches, Poisson times, traces of real services."""

import statistics
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.errors import ConfigError
from paredown.evaluate.load.arrival import (
    BLOCK_TOKENS,
    Arrival,
    Length,
    drawn,
    fit,
    poisson,
    together,
)


def test_a_prompt_has_its_length_and_no_other_like_it() -> None:
    one = Arrival(at_s=0, num_input_tokens=300, num_output_tokens=1)
    prompts = [one.prompt(500, (0, i, j)) for i in range(3) for j in range(3)]
    assert {len(prompt) for prompt in prompts} == {300}
    assert {min(prompt) >= 0 and max(prompt) < 500 for prompt in prompts} == {True}
    assert len({tuple(prompt[:16]) for prompt in prompts}) == 9
    assert one.prompt(500, (0, 1, 2)) == prompts[5]


def test_blocks_of_the_same_name_are_the_same_tokens() -> None:
    a = Arrival(at_s=0, num_input_tokens=1300, num_output_tokens=1, block_ids=(4, 5, 6))
    b = Arrival(at_s=0, num_input_tokens=1100, num_output_tokens=1, block_ids=(4, 5, 8))
    first, second = a.prompt(500, (1, 1)), b.prompt(500, (2, 2))
    assert (len(first), len(second)) == (1300, 1100)
    assert first[: 2 * BLOCK_TOKENS] == second[: 2 * BLOCK_TOKENS]
    assert first[2 * BLOCK_TOKENS :][:16] != second[2 * BLOCK_TOKENS :][:16]


def test_times_are_those_of_a_poisson_process() -> None:
    arrivals = poisson(together(4000, 3, 2), 20.0, seed=3)
    times = [one.at_s for one in arrivals]
    gaps = np.diff(times)
    assert times[0] == 0
    assert gaps.min() > 0
    # Of exponential gaps mean and standard deviation are 1 / rate; 4000 of them are 1.6 % off.
    assert statistics.fmean(gaps) == pytest.approx(1 / 20, rel=0.08)
    assert statistics.stdev(gaps) == pytest.approx(1 / 20, rel=0.08)
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 0.08
    assert times == [one.at_s for one in poisson(arrivals, 20.0, seed=3)]
    assert times != [one.at_s for one in poisson(arrivals, 20.0, seed=4)]


def test_lengths_are_drawn_between_two_bounds() -> None:
    arrivals = drawn(2000, Length.parse("16-19"), Length.parse("7"), seed=0)
    assert {one.num_input_tokens for one in arrivals} == {16, 17, 18, 19}
    assert {one.num_output_tokens for one in arrivals} == {7}


@pytest.mark.parametrize("text", ["0", "", "-3", "5-4", "1-2-3", "1.5", "many"])
def test_a_senseless_length_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Length.parse(text)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_senseless_rate_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match="rate"):
        poisson(together(2, 3, 2), rate, seed=0)


def test_what_a_model_cannot_hold_is_cut_and_counted() -> None:
    lengths = [(5, 5), (100, 5), (5, 100), (100, 100)]
    arrivals = [
        Arrival(at_s=i, num_input_tokens=a, num_output_tokens=b) for i, (a, b) in enumerate(lengths)
    ]
    fitted, num_cut = fit(arrivals, 20)
    found = [(one.num_input_tokens, one.num_output_tokens) for one in fitted]
    assert found == [(5, 5), (15, 5), (1, 19), (1, 19)]
    assert num_cut == 3
    assert [one.at_s for one in fitted] == [0, 1, 2, 3]


ARRIVALS = st.lists(
    st.builds(
        Arrival,
        at_s=st.floats(0, 100),
        num_input_tokens=st.integers(1, 3000),
        num_output_tokens=st.integers(1, 3000),
    ),
    min_size=1,
    max_size=8,
)


@given(ARRIVALS, st.integers(2, 4000))
def test_a_cut_request_fits_and_loses_no_more_than_it_must(
    arrivals: list[Arrival], max_tokens: int
) -> None:
    fitted, num_cut = fit(arrivals, max_tokens)
    assert num_cut == sum(one != before for one, before in zip(fitted, arrivals, strict=True))
    for one, before in zip(fitted, arrivals, strict=True):
        asked = before.num_input_tokens + before.num_output_tokens
        assert one.num_input_tokens + one.num_output_tokens == min(asked, max_tokens)
        assert 1 <= one.num_input_tokens <= before.num_input_tokens
        assert 1 <= one.num_output_tokens <= before.num_output_tokens
        if one.num_output_tokens < before.num_output_tokens:
            assert one.num_input_tokens == 1, "answers lose their end after prompts"
    assert fit(fitted, max_tokens) == (fitted, 0)


@given(st.integers(0, 2**20), st.floats(0.01, 100), st.integers(2, 30))
def test_twice_the_rate_is_half_the_time(seed: int, rate: float, number: int) -> None:
    requests = together(number, 3, 2)
    slow, fast = poisson(requests, rate, seed), poisson(requests, 2 * rate, seed)
    assert [one.at_s for one in slow] == pytest.approx([2 * one.at_s for one in fast])
    assert [one.at_s for one in slow] == sorted(one.at_s for one in slow)
    # Who comes does not depend on how many come after.
    assert poisson(requests[:-1], rate, seed) == slow[:-1]


@given(
    st.lists(st.integers(0, 3), max_size=3),
    st.lists(st.integers(0, 3), max_size=3),
    st.integers(1, 3 * BLOCK_TOKENS),
    st.integers(1, 3 * BLOCK_TOKENS),
)
@settings(max_examples=40, deadline=None)
def test_prompts_are_alike_as_far_as_their_blocks_are(
    blocks: list[int], others: list[int], size: int, other_size: int
) -> None:
    found, other = (
        Arrival(at_s=0, num_input_tokens=number, num_output_tokens=1, block_ids=tuple(ids)).prompt(
            50_000, (3, place)
        )
        for place, (number, ids) in enumerate(((size, blocks), (other_size, others)))
    )
    assert (len(found), len(other)) == (size, other_size)
    num_alike = 0
    for a, b in zip(blocks, others, strict=False):
        if a != b:
            break
        num_alike += BLOCK_TOKENS
    end = min(num_alike, size, other_size)
    assert found[:end] == other[:end]
    if min(size, other_size) > end + 16:
        assert found[end:][:16] != other[end:][:16]


@pytest.mark.parametrize(("text", "low", "high"), [("7", 7, 7), ("1-1", 1, 1), (" 2 - 5 ", 2, 5)])
def test_a_length_is_drawn_as_often_as_another(text: str, low: int, high: int) -> None:
    length = Length.parse(text)
    assert length == Length(low, high)
    rng, num_drawn = np.random.default_rng(1), 2000
    found = Counter(length.draw(rng) for _ in range(num_drawn))
    assert set(found) == set(range(low, high + 1))
    share = num_drawn / len(found)
    # Five standard deviations of a binomial.
    assert all(abs(one - share) <= 5 * share**0.5 for one in found.values())


def test_no_requests_are_refused() -> None:
    for number in (0, -1):
        with pytest.raises(ConfigError, match="no requests"):
            drawn(number, Length(1, 2), Length(1, 2), seed=0)
