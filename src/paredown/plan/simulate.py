"""Simulates a load, a response cache, a router and machines, event by event.

Events are arrivals and the ends of a machine's work. A machine runs by itself between events
(`Replica`); the heap holds the time of each one's next event.
"""

import math
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from paredown.cost.step_cost import StepCost
from paredown.engine.schedule.counted_request import CountedRequest
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.schedule.scheduler import QueueFullError
from paredown.errors import CapacityError, ConfigError, RequestError, UnsupportedError
from paredown.plan.replica import Replica
from paredown.plan.response_cache import Identity, ResponseCache, ResponseCacheConfig
from paredown.plan.routers import RouterName, make_router
from paredown.plan.simulation import LatencyLimits, Lateness, Moment, Simulation
from paredown.plan.step_times import StepTimes
from paredown.plan.workload import SimulatedRequest, Workload
from paredown.spec.kept_pages import KeptPages

MAX_REPLICAS = 10_000
_NUM_MOMENTS = 400


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Equal machines, and the components in front of them. `num_pages` and `max_positions` apply
    to each machine. `windows` are those of the model's layers. `kept` tells which pages a request
    keeps, if it does not keep all. Raises ConfigError."""

    num_pages: int
    max_positions: int
    num_replicas: int = 1
    windows: tuple[int, ...] = ()
    kept: KeptPages = field(default_factory=KeptPages)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    router: RouterName = "least-loaded"
    response_cache: ResponseCacheConfig = field(default_factory=ResponseCacheConfig)

    def __post_init__(self) -> None:
        for name, value, limit in (
            ("number of machines", self.num_replicas, MAX_REPLICAS),
            ("number of pages", self.num_pages, 1 << 31),
        ):
            if not 1 <= value <= limit:
                raise ConfigError(
                    f"the {name} is out of range", seen=value, remedy=f"Use 1 to {limit}."
                )
        if self.schedule.fair_shares:
            raise UnsupportedError(
                "simulated requests have no tenants",
                seen="fair_shares",
                remedy="Leave it out: among requests of one tenant it changes nothing.",
            )


class _PreemptedError(Exception):
    """A request was preempted in a run that must notice it."""


def simulate(
    workload: Workload,
    fleet: Fleet,
    cost: StepCost,
    *,
    num_warmup: int = 0,
    limits: LatencyLimits | None = None,
) -> Simulation:
    """Runs the whole load until its last answer ends; the first `num_warmup` requests are not
    counted. With `limits` it stops, and says so, once they certainly cannot be met.

    Where no two prompts begin alike, the prefix cache helps only a preempted request. The first
    run leaves it out, which saves most of the time; if a request is preempted, everything runs
    again with it. The times are the same (tests/plan/test_simulate.py).
    """
    if fleet.schedule.prefix_cache and not workload.shares_prefixes:
        plain = replace(fleet, schedule=replace(fleet.schedule, prefix_cache=False))
        try:
            return _Run(workload, plain, cost, num_warmup, limits).run(stop_at_preemption=True)
        except _PreemptedError:
            pass
    return _Run(workload, fleet, cost, num_warmup, limits).run(stop_at_preemption=False)


class _Run:
    def __init__(
        self,
        workload: Workload,
        fleet: Fleet,
        cost: StepCost,
        num_warmup: int,
        limits: LatencyLimits | None,
    ) -> None:
        self._workload = workload
        self._num_warmup = num_warmup
        self._lateness = None
        if limits is not None:
            self._lateness = Lateness(limits, workload.num_requests - num_warmup)
        times = StepTimes(cost, fleet.windows)
        self._replicas = [
            Replica(
                num_pages=fleet.num_pages,
                max_positions=fleet.max_positions,
                config=fleet.schedule,
                times=times,
                on_finish=self._note,
                coasts=not fleet.windows,
                kept=fleet.kept,
            )
            for _ in range(fleet.num_replicas)
        ]
        self._loads = [0] * fleet.num_replicas
        self._router = make_router(fleet.router)
        self._cache = ResponseCache(fleet.response_cache)
        # The identities of answers to keep, by the id of the request that computes them.
        self._awaited: dict[int, Identity] = {}
        self._events: list[tuple[float, int]] = []
        self._result = Simulation(num_replicas=fleet.num_replicas)
        # When the last work ended.
        self._ended_s = 0.0
        self._next_moment_s = 0.0
        self._moment_s = max(workload.duration_s, 1e-9) / _NUM_MOMENTS
        # Sums over the ends and starts so far, which give the time integral of the number of
        # requests.
        self._sum_of_ends_s = self._sum_of_starts_s = 0.0

    def run(self, *, stop_at_preemption: bool) -> Simulation:
        result, first_s, last_s = self._result, 0.0, 0.0
        for number, asked in enumerate(self._workload):
            time_s = last_s = asked.time_s
            if number == 0:
                first_s = time_s
            while self._next_moment_s <= time_s:
                self._take_moment()
                if stop_at_preemption and self._num_preemptions():
                    raise _PreemptedError
            if self._lateness is not None and self._lateness.is_hopeless:
                result.is_hopeless = True
                break
            self._run_until(time_s)
            self._arrive(number, asked)
        result.num_requests = max(result.num_requests - self._num_warmup, 0)
        if result.is_hopeless:
            self._run_until(last_s)
        else:
            self._run_to_the_end()
        if stop_at_preemption and self._num_preemptions():
            raise _PreemptedError
        result.duration_s = max(self._ended_s, last_s) - first_s
        self._add_up()
        return result

    def _run_until(self, time_s: float) -> None:
        """Processes all events before that time."""
        events, replicas = self._events, self._replicas
        while events and events[0][0] < time_s:
            now_s, number = heappop(events)
            self._ended_s = now_s
            replica = replicas[number]
            if replica.next_s == now_s:
                replica.wake()
                if replica.next_s < math.inf:
                    heappush(events, (replica.next_s, number))

    def _run_to_the_end(self) -> None:
        """Runs the remaining work after the last arrival. It may take much longer than the
        arrivals did, so moments are thinned out as they become too many."""
        moments = self._result.moments
        while self._events:
            self._take_moment()
            if len(moments) >= 2 * _NUM_MOMENTS:
                del moments[1::2]
                self._moment_s *= 2

    def _arrive(self, number: int, asked: SimulatedRequest) -> None:
        result = self._result
        result.num_requests += 1
        counts = number >= self._num_warmup
        if self._cache.answers(asked):
            result.num_hits += counts
            return
        time_s = asked.time_s
        request = CountedRequest(
            id=number,
            num_prompt_tokens=asked.num_prompt_tokens,
            num_output_tokens=asked.num_output_tokens,
            arrival_s=time_s,
            page_contents=asked.page_contents,
        )
        request.index = chosen = self._router(request, self._replicas, self._loads)
        replica = self._replicas[chosen]
        before_s = replica.next_s
        try:
            replica.submit(request, time_s)
        except QueueFullError:
            result.num_refused += counts
            return
        except (RequestError, CapacityError):
            result.num_too_long += counts
            return
        self._loads[chosen] += 1
        self._sum_of_starts_s += time_s
        if self._cache.wants(asked):
            assert asked.identity is not None
            self._awaited[number] = asked.identity
        if replica.next_s != before_s:
            heappush(self._events, (replica.next_s, chosen))

    def _note(self, request: CountedRequest) -> None:
        """Records the end of a request."""
        first_s, finish_s = request.first_token_s, request.finish_s
        assert first_s is not None
        assert finish_s is not None
        self._loads[request.index] -= 1
        self._sum_of_ends_s += finish_s
        if self._awaited:
            identity = self._awaited.pop(request.id, None)
            if identity is not None:
                self._cache.keep(identity)
        if request.id < self._num_warmup:
            return
        result, num_output_tokens = self._result, request.num_generated_tokens
        ttft_s, e2e_s, tpot_s = first_s - request.arrival_s, finish_s - request.arrival_s, -1.0
        if num_output_tokens > 1:
            tpot_s = (finish_s - first_s) / (num_output_tokens - 1)
        result.ttfts_s.append(ttft_s)
        result.e2es_s.append(e2e_s)
        result.tpots_s.append(tpot_s)
        if self._lateness is not None:
            self._lateness.note(e2e_s, ttft_s, tpot_s)
        result.num_prompt_tokens += request.num_prompt_tokens
        result.num_output_tokens += num_output_tokens

    def _take_moment(self) -> None:
        """Records the machines as they were when their current work began."""
        time_s = self._next_moment_s
        self._run_until(time_s)
        num_waiting = num_running = num_held = 0
        for replica in self._replicas:
            scheduler = replica.scheduler
            num_waiting += len(scheduler.waiting)
            num_running += scheduler.num_unfinished - len(scheduler.waiting)
            num_held += scheduler.pool.num_pages - scheduler.pool.num_free
        num_pages = len(self._replicas) * self._replicas[0].scheduler.pool.num_pages
        self._result.moments.append(Moment(time_s, num_waiting, num_running, num_held / num_pages))
        self._next_moment_s = time_s + self._moment_s

    def _num_preemptions(self) -> int:
        return sum(one.scheduler.num_preemptions for one in self._replicas)

    def _add_up(self) -> None:
        result = self._result
        result.num_preemptions = self._num_preemptions()
        result.request_seconds = self._sum_of_ends_s - self._sum_of_starts_s
        for replica in self._replicas:
            stats = replica.scheduler.cache.stats
            result.num_queried_tokens += stats.num_queried_tokens
            result.num_hit_tokens += stats.num_hit_tokens
            result.num_steps += replica.num_steps
            result.num_step_tokens += replica.num_step_tokens
            result.busy_s += replica.busy_s
