"""Turns: shares the event loop among connections when they want more than it can serve at once.

A round of the loop reads the data of all clients. If all of it were handled in that round, hundreds
of clients with endless requests would delay everybody else.
"""

import time
from asyncio import AbstractEventLoop
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable

# The time for one round. An answer takes several rounds.
BUDGET_S = 0.004


class Turns:
    """Makes calls at once while the round has time left. Later calls wait; groups then take
    turns."""

    def __init__(self) -> None:
        self._queues: OrderedDict[Hashable, deque[Callable[[], None]]] = OrderedDict()
        self._spent_s = 0.0
        self._is_round_open = False

    def take(self, loop: AbstractEventLoop, group: Hashable, call: Callable[[], None]) -> bool:
        """Returns whether the call was made; otherwise it is made later."""
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
