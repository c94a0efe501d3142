"""The policies by name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from paredown.engine.memory.request_pages import RequestPages
from paredown.engine.request import Request
from paredown.engine.schedule.policies.deadline import deadline
from paredown.engine.schedule.policies.first_come import first_come
from paredown.engine.schedule.policies.longest_prefix import LongestPrefixQueue
from paredown.engine.schedule.policies.priority import priority
from paredown.engine.schedule.waiting_queue import RankedQueue, WaitingQueue

PolicyName = Literal["first-come", "priority", "deadline", "longest-prefix"]
POLICY_NAMES: tuple[PolicyName, ...] = get_args(PolicyName)


@dataclass(frozen=True)
class Policy:
    """`rank`: the request of smallest (rank, id) keeps its pages longest. `preempts`: a waiting
    request may take pages from running ones of larger rank. `make_queue` makes the waiting queue,
    by rank or otherwise."""

    rank: Callable[[Request], float]
    preempts: bool
    make_queue: Callable[[RequestPages], WaitingQueue]


POLICIES: dict[PolicyName, Policy] = {
    "first-come": Policy(first_come, False, lambda pages: RankedQueue()),
    "priority": Policy(priority, True, lambda pages: RankedQueue()),
    "deadline": Policy(deadline, True, lambda pages: RankedQueue()),
    "longest-prefix": Policy(first_come, False, LongestPrefixQueue),
}
