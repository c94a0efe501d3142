"""Routers: choose the machine for the next request."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Literal, get_args

from paredown.engine.schedule.counted_request import CountedRequest
from paredown.plan.replica import Replica

RouterName = Literal["round-robin", "least-loaded", "prefix-affinity"]
ROUTER_NAMES: tuple[RouterName, ...] = get_args(RouterName)
# Takes the request, the machines and the number of requests that each one has, and returns the
# machine's number.
Router = Callable[[CountedRequest, Sequence[Replica], list[int]], int]

# A machine with this many times as many requests as the least loaded one, and some more, is too
# busy: its cache is not worth the wait.
BUSY_FACTOR = 2
BUSY_REQUESTS = 4


def make_router(name: RouterName) -> Router:
    """Makes a new router; round robin has a state."""
    return ROUTERS[name]()


def _round_robin() -> Router:
    numbers = count()
    return lambda request, replicas, loads: next(numbers) % len(replicas)


def _least_loaded() -> Router:
    return lambda request, replicas, loads: loads.index(min(loads))


def _prefix_affinity() -> Router:
    return prefix_affinity


def prefix_affinity(request: CountedRequest, replicas: Sequence[Replica], loads: list[int]) -> int:
    """Returns the machine whose prefix cache holds most of the prompt, and among equals the least
    loaded one, unless it is too busy. Caches are seen as they were when the machine's current
    equal steps began."""
    least = min(loads)
    if not request.page_contents:
        return loads.index(least)
    best, best_key = -1, (0, 0)
    for number, (replica, load) in enumerate(zip(replicas, loads, strict=True)):
        if load > BUSY_FACTOR * least + BUSY_REQUESTS:
            continue
        key = (replica.scheduler.num_known_pages(request), -load)
        if best < 0 or key > best_key:
            best, best_key = number, key
    return best


ROUTERS: dict[RouterName, Callable[[], Router]] = {
    "round-robin": _round_robin,
    "least-loaded": _least_loaded,
    "prefix-affinity": _prefix_affinity,
}
