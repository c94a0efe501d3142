"""WaitingQueue: the requests that do not run yet, in the order in which they will."""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Protocol

from paredown.engine.request import Request


class WaitingQueue(Protocol):
    """Holds each request once. A preempted request returns with its former rank."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Request]: ...

    def push(self, request: Request, /) -> None: ...

    def first(self) -> Request:
        """Returns the request to run next without removing it. The queue must not be empty."""
        ...

    def remove(self, request: Request, /) -> None: ...


class RankedQueue:
    """Orders by (rank, id), smallest first, in O(log n); entries of removed requests stay until
    they surface."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Request]] = []
        self._waiting: dict[int, Request] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._waiting.values())

    def push(self, request: Request) -> None:
        assert request.id not in self._waiting
        self._waiting[request.id] = request
        heappush(self._heap, (request.rank, request.id, request))
        if len(self._heap) > 2 * len(self._waiting) + 16:
            self._heap = sorted((one.rank, one.id, one) for one in self._waiting.values())

    def first(self) -> Request:
        while self._heap[0][1] not in self._waiting:
            heappop(self._heap)
        return self._heap[0][2]

    def remove(self, request: Request) -> None:
        del self._waiting[request.id]
