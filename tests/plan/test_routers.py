"""Routers against rules that are written out for one request at a time."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.engine.schedule.counted_request import CountedRequest
from paredown.plan.replica import Replica
from paredown.plan.routers import BUSY_FACTOR, BUSY_REQUESTS, Router, make_router, prefix_affinity

loads_and_known = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), min_size=1, max_size=6)


@dataclass
class KnowingScheduler:
    num_known: int

    def num_known_pages(self, request: CountedRequest) -> int:
        return min(self.num_known, len(request.page_contents))


@dataclass
class KnowingReplica:
    """A machine whose prefix cache holds so many pages of any prompt."""

    num_known: int
    scheduler: KnowingScheduler = field(init=False)

    def __post_init__(self) -> None:
        self.scheduler = KnowingScheduler(self.num_known)


def request(num_pages: int = 5) -> CountedRequest:
    return CountedRequest(
        id=0, num_prompt_tokens=200, num_output_tokens=1, page_contents=range(num_pages)
    )


def route(router: Router, machines: list[tuple[int, int]], num_pages: int = 5) -> int:
    """Of machines with (requests, known pages)."""
    replicas: list[Replica] = [KnowingReplica(known) for _, known in machines]  # type: ignore[misc]
    return router(request(num_pages), replicas, [load for load, _ in machines])


@given(loads_and_known, st.integers(1, 20))
def test_round_robin_gives_each_machine_its_turn(
    machines: list[tuple[int, int]], number: int
) -> None:
    router = make_router("round-robin")
    chosen = [route(router, machines) for _ in range(number)]
    assert chosen == [one % len(machines) for one in range(number)]
    # A router of another fleet begins anew.
    assert route(make_router("round-robin"), machines) == 0


@given(loads_and_known)
def test_the_least_loaded_is_the_first_with_the_fewest(machines: list[tuple[int, int]]) -> None:
    chosen = route(make_router("least-loaded"), machines)
    loads = [load for load, _ in machines]
    assert all(load > loads[chosen] for load in loads[:chosen])
    assert all(load >= loads[chosen] for load in loads[chosen:])


@given(loads_and_known)
def test_affinity_is_most_known_pages_among_those_not_too_busy(
    machines: list[tuple[int, int]],
) -> None:
    least = min(load for load, _ in machines)
    free = [one for one in machines if one[0] <= 2 * least + 4]
    known, load = max((known, -load) for load, known in free)
    assert route(prefix_affinity, machines) == machines.index((-load, known))
    assert route(make_router("prefix-affinity"), machines) == route(prefix_affinity, machines)


@given(loads_and_known)
def test_affinity_without_known_pages_is_the_least_loaded(machines: list[tuple[int, int]]) -> None:
    expected = route(make_router("least-loaded"), machines)
    assert route(prefix_affinity, machines, num_pages=0) == expected
    assert route(prefix_affinity, [(load, 0) for load, _ in machines]) == expected


@pytest.mark.parametrize("least", [0, 3])
def test_a_machine_is_too_busy_from_one_request_more_on(least: int) -> None:
    limit = BUSY_FACTOR * least + BUSY_REQUESTS
    assert route(prefix_affinity, [(least, 0), (limit, 5)]) == 1
    assert route(prefix_affinity, [(least, 0), (limit + 1, 5)]) == 0
