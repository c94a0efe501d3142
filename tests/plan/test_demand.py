"""The load that is planned for: its rate behind the response cache, and its mean lengths."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.traces import make_trace
from paredown.errors import CapacityError, ConfigError
from paredown.plan.demand import Demand
from paredown.plan.lengths import parse_lengths
from paredown.plan.simulation import LatencyLimits
from paredown.plan.workload import DrawnLengths, TraceLengths, TraceWorkload

LENGTHS = DrawnLengths(prompt=parse_lengths("100-300"), output=parse_lengths("20-60"))
DEMAND = Demand(requests_per_s=40, lengths=LENGTHS, limits=LatencyLimits(e2e_s=1.0))


class TwoKinds:
    """One prompt in `every` is long."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.num_drawn = 0

    def draw(self, rng: random.Random, /) -> tuple[int, int]:
        self.num_drawn += 1
        return (1000 if self.num_drawn % self.every == 0 else 10), 30


@given(st.floats(0, 0.99))
def test_what_the_cache_answers_reaches_no_machine(hit_rate: float) -> None:
    demand = replace(DEMAND, hit_rate=hit_rate)
    assert demand.computed_per_s == pytest.approx(40 - 40 * hit_rate)


@given(st.floats(0.1, 1e3), st.integers(1, 500))
def test_the_load_comes_at_the_rate_and_in_the_number_asked_for(rate: float, number: int) -> None:
    workload = DEMAND.workload(rate, number)
    assert workload.num_requests == number
    assert workload.duration_s == pytest.approx(number / rate)
    assert list(workload) == list(DEMAND.random_workload(rate, number))


@pytest.mark.parametrize("number", [1, 5, 6, 7, 20])
def test_a_trace_is_repeated_until_there_are_enough(number: int) -> None:
    trace = make_trace([(float(one), 600, 5, (0, one + 1)) for one in range(6)])
    demand = replace(DEMAND, trace=trace, lengths=TraceLengths(trace=trace))
    workload = demand.workload(12.0, max(number, 2))
    assert isinstance(workload, TraceWorkload)
    assert number <= workload.num_requests < number + 6
    assert workload.trace.requests_per_s == pytest.approx(12.0)
    assert workload.shares_prefixes
    assert demand.shares_prefixes
    assert demand.new_share == pytest.approx((600 + 5 * 88) / 3600)
    # The same lengths without the times and the prefixes.
    alone = demand.random_workload(12.0, number)
    assert not alone.shares_prefixes
    assert alone.num_requests == number


def test_without_a_trace_all_of_a_prompt_is_new() -> None:
    assert DEMAND.new_share == 1.0
    assert not DEMAND.shares_prefixes


def test_mean_lengths_are_those_of_what_is_drawn() -> None:
    prompt, output = DEMAND.mean_tokens(10_000)
    assert prompt == pytest.approx(200, rel=0.03)
    assert output == pytest.approx(40, rel=0.03)
    # An answer ends where the context does: a prompt of 100 to 300 leaves 320 less that.
    _, cut = DEMAND.mean_tokens(320)
    lengths = [min(output, 320 - prompt) for prompt in range(100, 301) for output in range(20, 61)]
    assert cut == pytest.approx(sum(lengths) / len(lengths), rel=0.03)


def test_a_few_prompts_may_be_too_long_and_count_no_more() -> None:
    few = replace(DEMAND, lengths=TwoKinds(25))
    assert few.mean_tokens(1000) == (10, 30)
    assert replace(DEMAND, lengths=TwoKinds(25)).mean_tokens(1001)[0] == (24 * 10 + 1000) / 25
    assert replace(DEMAND, lengths=TwoKinds(25)).mean_tokens(1001)[1] == (24 * 30 + 1) / 25
    with pytest.raises(CapacityError, match=r"5% of the prompts.*up to 1,000.*room for 1,000"):
        replace(DEMAND, lengths=TwoKinds(19)).mean_tokens(1000)


@pytest.mark.parametrize("rate", [0.0, 1e-320, 9e-7, -1.0, math.nan, math.inf, 1e9])
def test_senseless_loads(rate: float) -> None:
    with pytest.raises(ConfigError, match="load is out of range"):
        replace(DEMAND, requests_per_s=rate)


def test_a_senseless_hit_rate() -> None:
    with pytest.raises(ConfigError, match="hit rate"):
        replace(DEMAND, hit_rate=1.0)
