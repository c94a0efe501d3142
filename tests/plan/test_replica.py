"""Coasting is the plain scheduler: the same requests at the same times, the same pages free, the
same of the cache forgotten, whatever comes when."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.engine.schedule.counted_request import CountedRequest
from paredown.engine.schedule.policies.table import POLICY_NAMES
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.schedule.scheduler import QueueFullError
from paredown.engine.schedule.service import Service
from paredown.errors import CapacityError, RequestError
from paredown.plan.replica import Replica
from paredown.plan.step_times import StepTimes
from paredown.plan.workload import SimulatedRequest
from paredown.spec.kv import PAGE_SIZE
from references.plain_simulation import LinearCost, PlainSimulation, idle_chains

MAX_POSITIONS = 400
TICK_S = 2**-9


@st.composite
def arrivals(draw: st.DrawFn) -> list[SimulatedRequest]:
    """Prompts of a few families, which begin alike; all times are multiples of a power of two."""
    found, time_s = [], 0.0
    for _ in range(draw(st.integers(1, 14))):
        time_s += TICK_S * draw(st.integers(0, 60))
        family, num_pages = draw(st.integers(0, 2)), draw(st.integers(0, 6))
        num_own = draw(st.integers(0 if num_pages else 1, 60))
        found.append(
            SimulatedRequest(
                time_s,
                num_pages * PAGE_SIZE + num_own,
                draw(st.integers(1, 120)),
                [100 * family + one for one in range(num_pages)],
            )
        )
    return found


configs = st.builds(
    ScheduleConfig,
    max_step_tokens=st.sampled_from([4, 16, 17, 64, 512]),
    max_running=st.sampled_from([1, 2, 4, 12]),
    max_waiting=st.sampled_from([2, 256]),
    policy=st.sampled_from(POLICY_NAMES),
    prefix_cache=st.booleans(),
)
services = st.builds(Service, priority=st.integers(-1, 1), cache_salt=st.just("x"))


class Simulated:
    """One machine whose events are run up to each arrival."""

    def __init__(self, num_pages: int, config: ScheduleConfig, *, is_checked: bool) -> None:
        self.finished: list[CountedRequest] = []
        self.requests: list[CountedRequest] = []
        self.num_refused = 0
        self.is_checked = is_checked
        self.replica = Replica(
            num_pages=num_pages,
            max_positions=MAX_POSITIONS,
            config=config,
            times=StepTimes(LinearCost()),
            on_finish=self.finished.append,
        )

    def run(self, coming: list[SimulatedRequest], services: list[Service]) -> None:
        for number, (arrival, service) in enumerate(zip(coming, services, strict=True)):
            self.run_until(arrival.time_s)
            request = CountedRequest(
                id=number,
                num_prompt_tokens=arrival.num_prompt_tokens,
                num_output_tokens=arrival.num_output_tokens,
                arrival_s=arrival.time_s,
                page_contents=arrival.page_contents,
                service=service,
            )
            try:
                self.replica.submit(request, arrival.time_s)
            except (QueueFullError, RequestError, CapacityError):
                self.num_refused += 1
            else:
                self.requests.append(request)
        self.run_until(math.inf)

    def run_until(self, time_s: float) -> None:
        while self.replica.next_s < time_s:
            self.replica.wake()
            if self.is_checked and self.replica.next_s == math.inf:
                self.replica.scheduler.check_integrity()


@settings(max_examples=150, deadline=None)
@given(
    coming=arrivals(),
    config=configs,
    num_pages=st.integers(5, 60),
    tenants=st.lists(services, min_size=14, max_size=14),
)
def test_the_same_as_single_steps(
    coming: list[SimulatedRequest], config: ScheduleConfig, num_pages: int, tenants: list[Service]
) -> None:
    tenants = tenants[: len(coming)]
    plain = PlainSimulation(
        num_pages=num_pages, max_positions=MAX_POSITIONS, config=config, cost=LinearCost()
    )
    plain.run(coming, tenants)
    fast = Simulated(num_pages, config, is_checked=True)
    fast.run(coming, tenants)
    assert fast.num_refused == plain.num_refused
    assert [(one.id, one.finish_s) for one in fast.finished] == [
        (one.id, one.finish_s) for one in plain.finished
    ]
    for a, b in zip(fast.requests, plain.requests, strict=True):
        assert a.id == b.id
        assert a.first_token_s == b.first_token_s
        assert a.num_tokens == b.num_tokens
        assert a.num_preemptions == b.num_preemptions
        assert a.num_cached_tokens == b.num_cached_tokens
    assert fast.replica.num_steps == plain.num_steps
    assert fast.replica.busy_s == plain.busy_s
    assert fast.replica.scheduler.cache.stats == plain.scheduler.cache.stats
    assert fast.replica.scheduler.pool.num_free == plain.scheduler.pool.num_free == num_pages
    assert idle_chains(fast.replica.scheduler) == idle_chains(plain.scheduler)


def test_many_steps_at_once() -> None:
    """A request alone takes as many events as it meets doublings of its context."""
    fast = Simulated(60, ScheduleConfig(), is_checked=False)
    fast.replica.submit(CountedRequest(id=0, num_prompt_tokens=20, num_output_tokens=200), 0.0)
    num_events = 0
    while fast.replica.next_s < math.inf:
        fast.replica.wake()
        num_events += 1
    assert fast.finished[0].num_tokens == 220
    assert fast.replica.num_steps == 200
    # The prompt, contexts of 21, 32, 64 and 128 tokens, and the end.
    assert num_events == 6
