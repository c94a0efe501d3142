"""Turns: how connections share the event loop when more of them want it than it can serve at once.

A round of the loop reads what all clients have sent. Were all of it handled in that round, hundreds
of clients with requests without end would make everybody else wait for all of theirs.
"""

import time
from asyncio import AbstractEventLoop
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable

# What is handled in one round. An answer takes some rounds.
BUDGET_S = 0.004


class Turns:
    """Calls at once what it is given while the round has time left; later the others, one of each
    group after the other."""

    def __init__(self) -> None:
        self._queues: OrderedDict[Hashable, deque[Callable[[], None]]] = OrderedDict()
        self._spent_s = 0.0
        self._is_round_open = False

    def take(self, loop: AbstractEventLoop, group: Hashable, call: Callable[[], None]) -> bool:
        """Whether it has been called; else it will be."""
        if not self._is_round_open:
            self._is_round_open = True
            loop.call_soon(self._end_round, loop)
        if self._queues or self._spent_s >= BUDGET_S:
            self._queues.setdefault(group, deque()).append(call)
            return False
        self._call(call)
        return True

    def _end_round(self, loop: AbstractEventLoop) -> None:
        self._spent_s = 0.0
        try:
            while self._queues:
                group, queue = self._queues.popitem(last=False)
                call = queue.popleft()
                if queue:
                    self._queues[group] = queue
                self._call(call)
                if self._spent_s >= BUDGET_S:
                    break
        finally:
            self._is_round_open = bool(self._queues)
            if self._is_round_open:
                loop.call_soon(self._end_round, loop)

    def _call(self, call: Callable[[], None]) -> None:
        started_s = time.perf_counter()
        try:
            call()
        finally:
            self._spent_s += time.perf_counter() - started_s
