"""Loads: when requests come, how long they are, and which pages of their prompts are the same."""

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.traces import make_trace, traces
from paredown.errors import ConfigError
from paredown.evaluate.load.arrival import Arrival
from paredown.plan.lengths import parse_lengths
from paredown.plan.trace import Trace
from paredown.plan.workload import (
    DrawnLengths,
    RandomWorkload,
    SimulatedRequest,
    TraceLengths,
    TraceWorkload,
    simulated_request,
)
from paredown.spec.kv import PAGE_SIZE

SHORT = DrawnLengths(prompt=parse_lengths("10-200"), output=parse_lengths("1-60"))


def random_workload(**options: float) -> RandomWorkload:
    values = {"requests_per_s": 20.0, "num_requests": 400} | options
    return RandomWorkload(lengths=SHORT, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(("burstiness", "on_share"), [(1.0, 1.0), (2.0, 1.0), (1.0, 0.25)])
def test_arrivals_have_the_rate_and_the_burstiness(burstiness: float, on_share: float) -> None:
    workload = random_workload(
        num_requests=40_000, burstiness=burstiness, on_share=on_share, period_s=10
    )
    times = [one.time_s for one in workload]
    assert times == [one.time_s for one in workload]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(workload.duration_s, rel=0.05)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    mean = sum(gaps) / len(gaps)
    if on_share == 1:
        spread = math.sqrt(sum((one - mean) ** 2 for one in gaps) / len(gaps)) / mean
        assert spread == pytest.approx(burstiness, rel=0.05)
    else:
        assert all(one % 10 <= 2.5 + 1e-6 for one in times)


@given(st.floats(0.1, 1e4), st.integers(1, 300), st.integers(0, 5))
@settings(max_examples=30)
def test_the_same_requests_come_at_any_rate(rate: float, number: int, seed: int) -> None:
    """Twice the rate is half the times, and another seed other times; lengths stay the same."""
    one = list(random_workload(requests_per_s=rate, num_requests=number, seed=seed))
    twice = list(random_workload(requests_per_s=2 * rate, num_requests=number, seed=seed))
    other = list(random_workload(requests_per_s=rate, num_requests=number, seed=seed + 1))
    assert len(one) == number
    assert [a.time_s for a in one] == pytest.approx([2 * b.time_s for b in twice])
    assert [lengths(a) for a in one] == [lengths(b) for b in twice]
    assert [a.time_s for a in one] != [b.time_s for b in other]


def lengths(request: SimulatedRequest) -> tuple[int, int]:
    return request.num_prompt_tokens, request.num_output_tokens


def test_bursts_have_the_rate_of_the_whole_within_their_share_of_the_time() -> None:
    workload = random_workload(num_requests=20_000, on_share=0.2, period_s=50)
    times = [one.time_s for one in workload]
    in_burst = [one for one in times if 100 <= one < 110]
    assert len(in_burst) / 10 == pytest.approx(20 / 0.2, rel=0.1)
    assert not [one for one in times if 110.001 < one < 149.999]


def test_too_few_requests_for_two_bursts_are_refused_with_the_number_that_is_enough() -> None:
    with pytest.raises(ConfigError, match="at least 400 requests"):
        random_workload(num_requests=399, on_share=0.5, period_s=10.0)
    assert len(list(random_workload(num_requests=400, on_share=0.5, period_s=10.0))) == 400


def test_prompt_and_answer_are_drawn_apart() -> None:
    rng = random.Random(0)
    pairs = [SHORT.draw(rng) for _ in range(5000)]
    prompts, answers = zip(*pairs, strict=True)
    assert (min(prompts), max(prompts)) == (10, 200)
    assert (min(answers), max(answers)) == (1, 60)
    mean, other = sum(prompts) / 5000, sum(answers) / 5000
    covariance = sum((a - mean) * (b - other) for a, b in pairs) / 5000
    assert abs(covariance) < 0.06 * 55 * 17.3


def test_lengths_of_a_trace_are_drawn_together_and_all_alike() -> None:
    trace = make_trace([(float(one), 10 * one + 10, one + 1, ()) for one in range(8)])
    drawn = TraceLengths(trace=trace)
    rng = random.Random(0)
    found = [drawn.draw(rng) for _ in range(8000)]
    assert {output for _, output in found} == set(range(1, 9))
    assert all(prompt == 10 * output for prompt, output in found)
    counts = [found.count((10 * one, one)) for one in range(1, 9)]
    assert min(counts) > 850


@given(traces(), st.integers(1, 3))
def test_a_trace_is_repeated_and_shares_nothing_with_its_next_round(
    trace: Trace, num_rounds: int
) -> None:
    workload = TraceWorkload(trace=trace, num_rounds=num_rounds)
    found, size = list(workload), len(trace.requests)
    assert workload.num_requests == len(found) == num_rounds * size
    assert [lengths(one) for one in found[:size]] * num_rounds == [lengths(one) for one in found]
    times = [one.time_s for one in found]
    assert times == sorted(times)
    assert times[0] == 0
    # A round ends where the next request could have come: one mean gap after the last.
    gap_s = trace.duration_s / (size - 1)
    assert workload.duration_s == pytest.approx(num_rounds * (trace.duration_s + gap_s))
    rounds = [found[start : start + size] for start in range(0, len(found), size)]
    pages = [{page for one in requests for page in one.page_contents} for requests in rounds]
    identities = [{one.identity for one in requests} for requests in rounds]
    for (a, b), (c, d) in zip(
        itertools.combinations(pages, 2), itertools.combinations(identities, 2), strict=True
    ):
        assert not a & b
        assert not c & d


@given(traces(max_requests=4))
@settings(max_examples=40, deadline=None)
def test_pages_are_the_same_where_the_tokens_of_a_trace_are(trace: Trace) -> None:
    """Against the prompts that a benchmark makes of the same arrivals: each full page, together
    with all before it, is one number exactly where it is the same tokens."""
    found = [simulated_request(one, 0.0) for one in trace.requests]
    prompts = [one.prompt(50_000, (number,)) for number, one in enumerate(trace.requests)]
    for one, prompt in zip(found, prompts, strict=True):
        assert one.num_prompt_tokens == len(prompt)
        assert len(one.page_contents) == len(prompt) // PAGE_SIZE
    for (a, tokens), (b, others) in itertools.combinations(zip(found, prompts, strict=True), 2):
        for page in range(min(len(a.page_contents), len(b.page_contents))):
            end = (page + 1) * PAGE_SIZE
            is_same = a.page_contents[: page + 1] == b.page_contents[: page + 1]
            assert is_same == (tokens[:end] == others[:end])


def test_a_request_without_blocks_is_like_no_other() -> None:
    arrival = Arrival(at_s=0.0, num_input_tokens=100, num_output_tokens=3)
    found = simulated_request(arrival, 2.5)
    assert (found.time_s, found.page_contents, found.identity) == (2.5, [], None)


@given(traces(max_requests=3))
def test_requests_of_equal_prompts_ask_the_same(trace: Trace) -> None:
    for a, b in itertools.combinations(trace.requests, 2):
        is_same = (a.num_input_tokens, a.block_ids) == (b.num_input_tokens, b.block_ids)
        pair = [simulated_request(one, 0.0).identity for one in (a, b)]
        assert (pair[0] == pair[1]) == is_same


@pytest.mark.parametrize(
    "options",
    [
        {"requests_per_s": 0.0},
        {"requests_per_s": 1e-320},
        {"requests_per_s": -3.0},
        {"requests_per_s": math.nan},
        {"requests_per_s": 1e9},
        {"num_requests": 0},
        {"burstiness": -1.0},
        {"on_share": 1.5},
        {"period_s": 0.0},
    ],
)
def test_senseless_loads(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="is out of range"):
        random_workload(**options)
