"""The simulator against closed forms of queues, against itself without its shortcuts, and against
the engine."""

import itertools
import math
from pathlib import Path
from typing import get_args

import pytest

from drivers.shared_data import data_folder, needs_data
from paredown.cost.step_cost import StepLoad
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.errors import ConfigError, UnsupportedError
from paredown.plan.lengths import parse_lengths
from paredown.plan.response_cache import ResponseCacheConfig
from paredown.plan.routers import RouterName
from paredown.plan.simulate import Fleet, simulate
from paredown.plan.simulation import LatencyLimits
from paredown.plan.trace import Trace, open_trace
from paredown.plan.workload import DrawnLengths, RandomWorkload, TraceWorkload
from paredown.spec.kept_pages import KeptPages
from paredown.spec.kv import PAGE_SIZE
from references.plain_simulation import LinearCost

TRACES = data_folder("traces") or Path()
with_traces = needs_data("traces")
SHORT = DrawnLengths(prompt=parse_lengths("10-200"), output=parse_lengths("1-60"))


def fleet(num_replicas: int = 1, num_pages: int = 600, **options: object) -> Fleet:
    return Fleet(
        num_pages=num_pages,
        max_positions=100_000,
        num_replicas=num_replicas,
        schedule=ScheduleConfig(max_waiting=100_000, **options),  # type: ignore[arg-type]
    )


class ConstantCost:
    """A machine that takes as long for any step."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def step_s(self, step: StepLoad) -> float:
        return self.seconds


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_at_a_time_is_an_m_d_1_queue(load: float) -> None:
    """Pollaczek and Khinchin: of answers of one step of D seconds, one at a time, the mean wait is
    load D / (2 (1 - load))."""
    service_s = 0.125
    workload = RandomWorkload(
        requests_per_s=load / service_s,
        num_requests=40_000,
        lengths=DrawnLengths(prompt=parse_lengths("16"), output=parse_lengths("1")),
        seed=5,
    )
    found = simulate(workload, fleet(max_running=1), ConstantCost(service_s))
    wait_s = found.ttft.mean - service_s
    assert wait_s == pytest.approx(load * service_s / (2 * (1 - load)), rel=0.07)
    assert found.utilization == pytest.approx(load, rel=0.02)


def test_more_than_one_at_a_time_is_a_batch_queue() -> None:
    """Where a step takes as long for one as for all, who comes in one step is served in the next:
    the first waits for the rest of a step and then for his own, 1.5 steps in a busy system."""
    workload = RandomWorkload(
        requests_per_s=400,
        num_requests=20_000,
        lengths=DrawnLengths(prompt=parse_lengths("1"), output=parse_lengths("1")),
    )
    found = simulate(workload, fleet(max_running=500), ConstantCost(0.25))
    assert found.ttft.mean == pytest.approx(1.5 * 0.25, rel=0.01)


@pytest.mark.parametrize("router", get_args(RouterName))
def test_littles_law(router: RouterName) -> None:
    """What is there on average is what comes per second times how long it stays. The left side is
    counted at moments that have nothing to do with arrivals."""
    workload = RandomWorkload(requests_per_s=60, num_requests=20_000, lengths=SHORT, burstiness=1.5)
    several = Fleet(
        num_pages=600,
        max_positions=4096,
        num_replicas=3,
        router=router,
        schedule=ScheduleConfig(max_waiting=100_000),
    )
    found = simulate(workload, several, LinearCost())
    assert len(found.e2es_s) == 20_000
    seen = [one.num_waiting + one.num_running for one in found.moments]
    mean_seen = sum(seen) / len(seen)
    assert mean_seen == pytest.approx(60 * found.e2e.mean, rel=0.1)
    # Over all of the time it is exact.
    assert found.request_seconds == pytest.approx(sum(found.e2es_s))


@pytest.mark.parametrize("num_pages", [40, 600])
def test_the_prefix_cache_is_left_out_where_it_finds_nothing(num_pages: int) -> None:
    """With few pages requests are preempted, and find what they had."""
    workload = RandomWorkload(requests_per_s=100, num_requests=400, lengths=SHORT)

    class Sharing:
        """The same requests, said to share."""

        num_requests, duration_s, shares_prefixes = 400, 4.0, True

        def __iter__(self):  # type: ignore[no-untyped-def]
            return iter(workload)

    fast = simulate(workload, fleet(num_pages=num_pages), LinearCost())
    slow = simulate(Sharing(), fleet(num_pages=num_pages), LinearCost())
    assert (fast.num_preemptions > 0) == (num_pages == 40)
    assert fast.num_preemptions == slow.num_preemptions
    assert fast.ttfts_s == slow.ttfts_s
    assert fast.e2es_s == slow.e2es_s


@with_traces
def test_a_mooncake_trace_hits_as_often_as_its_ids_say() -> None:
    """With room for all, what a request finds is what requests before it have computed: each block
    whose id and all ids before it were seen, but for the last token of a prompt."""
    trace = open_trace(TRACES / "mooncake" / "conversation_trace.jsonl").first(150)
    found = simulate(
        TraceWorkload(trace=trace.at_rate(0.05)),
        Fleet(num_pages=300_000, max_positions=200_000),
        LinearCost(token=2**-20, pair=0.0),
    )
    assert not found.num_preemptions
    seen: set[int] = set()
    expected = 0
    for one in trace.requests:
        known = sum(1 for _ in itertools.takewhile(seen.__contains__, one.block_ids))
        expected += min(512 * known, (one.num_input_tokens - 1) // PAGE_SIZE * PAGE_SIZE)
        seen.update(one.block_ids)
    assert expected > 0
    assert found.num_hit_tokens == expected


@with_traces
def test_affinity_finds_more_than_the_least_loaded() -> None:
    trace = open_trace(TRACES / "mooncake" / "conversation_trace.jsonl").first(200)
    cost = LinearCost(token=2**-20, pair=0.0)
    hits = {}
    for router in get_args(RouterName):
        several = Fleet(num_pages=60_000, max_positions=200_000, num_replicas=3, router=router)
        found = simulate(TraceWorkload(trace=trace.at_rate(0.5)), several, cost)
        assert len(found.e2es_s) == 200
        hits[router] = found.prefix_hit_rate
    assert hits["prefix-affinity"] > hits["least-loaded"] > 0
    assert hits["prefix-affinity"] > hits["round-robin"]


def test_a_response_cache_takes_its_share() -> None:
    workload = RandomWorkload(requests_per_s=50, num_requests=4000, lengths=SHORT)
    cached = Fleet(
        num_pages=600, max_positions=4096, response_cache=ResponseCacheConfig(hit_rate=0.25)
    )
    found = simulate(workload, cached, LinearCost())
    assert found.num_hits == pytest.approx(1000, rel=0.1)
    assert found.num_hits + len(found.e2es_s) == found.num_requests == 4000
    assert found.e2e.mean < simulate(workload, fleet(), LinearCost()).e2e.mean


@with_traces
def test_a_real_response_cache_answers_who_asks_again() -> None:
    trace = open_trace(TRACES / "mooncake" / "conversation_trace.jsonl").first(30)
    twice = Trace(
        name="twice",
        requests=tuple(
            type(one)(
                at_s=1000.0 * number,
                num_input_tokens=one.num_input_tokens,
                num_output_tokens=one.num_output_tokens,
                block_ids=one.block_ids,
            )
            for number, one in enumerate((*trace.requests, *trace.requests))
        ),
    )
    cost = LinearCost(token=2**-20, pair=0.0)
    for num_answers, num_hits in ((100, 30), (30, 30), (29, 0)):
        cached = Fleet(
            num_pages=60_000,
            max_positions=200_000,
            response_cache=ResponseCacheConfig(num_answers=num_answers),
        )
        assert simulate(TraceWorkload(trace=twice), cached, cost).num_hits == num_hits


def test_refusals_are_counted_and_break_a_limit() -> None:
    workload = RandomWorkload(requests_per_s=1000, num_requests=500, lengths=SHORT)
    small = Fleet(num_pages=40, max_positions=150, schedule=ScheduleConfig(max_waiting=5))
    found = simulate(workload, small, LinearCost())
    assert found.num_refused > 100
    assert found.num_too_long > 50
    assert found.num_refused + found.num_too_long + len(found.e2es_s) == 500
    assert not found.meets(LatencyLimits(e2e_s=1e6))
    assert found.goodput(LatencyLimits(e2e_s=1e6)) == len(found.e2es_s) / 500


def test_requests_behind_their_windows_fit_few_pages() -> None:
    lengths = DrawnLengths(prompt=parse_lengths("400"), output=parse_lengths("50"))
    workload = RandomWorkload(requests_per_s=1, num_requests=20, lengths=lengths)
    sizes = {
        "num_pages": 20,
        "max_positions": 1000,
        "schedule": ScheduleConfig(max_step_tokens=64, max_waiting=100),
    }
    assert simulate(workload, Fleet(**sizes), LinearCost()).num_too_long == 20
    behind = Fleet(**sizes, windows=(64,), kept=KeptPages(window=64))
    assert len(simulate(workload, behind, LinearCost()).e2es_s) == 20


@pytest.mark.parametrize("rate", [20, 20_000])
def test_moments_go_on_to_the_last_answer(rate: int) -> None:
    """Also where that comes long after the last arrival; there are never many of them."""
    workload = RandomWorkload(requests_per_s=rate, num_requests=300, lengths=SHORT)
    found = simulate(workload, fleet(), LinearCost())
    times = [one.time_s for one in found.moments]
    assert 200 < len(times) <= 800
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert max(gaps) == pytest.approx(min(gaps))
    assert times[-1] >= found.duration_s - gaps[0]
    last = found.moments[-1]
    assert last.num_waiting == 0
    if rate == 20_000:
        assert found.duration_s > 100 * workload.duration_s


def test_a_warm_up_is_left_out() -> None:
    workload = RandomWorkload(requests_per_s=50, num_requests=300, lengths=SHORT)
    whole = simulate(workload, fleet(), LinearCost())
    rest = simulate(workload, fleet(), LinearCost(), num_warmup=100)
    assert rest.num_requests == len(rest.e2es_s) == 200
    assert set(rest.e2es_s) < set(whole.e2es_s)


def test_senseless_fleets() -> None:
    for options in ({"num_replicas": 0}, {"num_replicas": 10**6}, {"num_pages": 0}):
        with pytest.raises(ConfigError, match="is out of range"):
            Fleet(**({"num_pages": 10, "max_positions": 10} | options))  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="no tenants"):
        Fleet(num_pages=1, max_positions=1, schedule=ScheduleConfig(fair_shares=True))
    for hit_rate in (-0.1, 1.0, math.nan):
        with pytest.raises(ConfigError, match="hit rate"):
            ResponseCacheConfig(hit_rate=hit_rate)
    with pytest.raises(ConfigError, match="either"):
        ResponseCacheConfig(hit_rate=0.1, num_answers=5)


def test_a_hopeless_run_stops() -> None:
    """And says so only where the whole run does not keep the limits either."""
    for rate in (20, 60, 200):
        workload = RandomWorkload(requests_per_s=rate, num_requests=2000, lengths=SHORT)
        for limits in (LatencyLimits(e2e_s=0.4), LatencyLimits(ttft_s=0.05, tpot_s=0.02)):
            whole = simulate(workload, fleet(), LinearCost())
            stopped = simulate(workload, fleet(), LinearCost(), limits=limits)
            assert stopped.meets(limits) == whole.meets(limits)
            if stopped.is_hopeless:
                assert len(stopped.e2es_s) <= len(whole.e2es_s)
            else:
                assert stopped.e2es_s == whole.e2es_s
    assert stopped.is_hopeless
    assert len(stopped.e2es_s) < 1000
