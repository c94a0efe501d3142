"""SideThread: runs long work of requests in one thread beside the event loop, one piece at a
time."""

import asyncio
import heapq
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from starlette.types import Receive

from paredown.engine.schedule.scheduler import QueueFullError
from paredown.serve.intake.disconnect import run_until_disconnect

T = TypeVar("T")
MAX_WAITING = 64
# The thread rests for this share of each piece's time, because others cannot run while it holds the
# GIL.
REST_SHARE = 0.5
MAX_REST_S = 0.05


@dataclass(order=True)
class _Turn:
    """The order of waiting work: shorter work first, ties by arrival."""

    size: int
    number: int
    future: "asyncio.Future[None]" = field(compare=False)


class Wanted:
    """Says whether anybody still waits for the current work."""

    def __init__(self) -> None:
        self.is_gone = False


class SideThread:
    """Runs one piece of work at a time; at most MAX_WAITING pieces wait. Work of a client that has
    gone is not begun, and running work can ask and stop."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, f"paredown-{name}")
        self._name = name
        self._waiting: list[_Turn] = []
        self._is_busy = False
        self._num_asked = 0
        # Waiting and running work.
        self._num_inside = 0

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    async def run(self, receive: Receive, size: int, work: Callable[[Wanted], T]) -> T:
        """Returns or raises what `work` does. Raises QueueFullError where too many wait, and
        ClientGoneError when the client hangs up; its body must have been read."""
        if self._num_inside > MAX_WAITING:
            raise QueueFullError(
                f"too many long requests wait for their {self._name}",
                seen=f"{self._num_inside - 1} waiting of at most {MAX_WAITING}",
                remedy="Send the request again later.",
            )
        self._num_inside += 1
        try:
            return await run_until_disconnect(receive, self._run(size, work))
        finally:
            self._num_inside -= 1

    async def _run(self, size: int, work: Callable[[Wanted], T]) -> T:
        await self._turn(size)
        wanted, loop = Wanted(), asyncio.get_running_loop()
        start_s = time.monotonic()
        running = self._thread.submit(work, wanted)

        def end(_: Future[T]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._rest, time.monotonic() - start_s)

        # The turn ends when the work does, even if nobody waits for it any more.
        running.add_done_callback(end)
        try:
            return await asyncio.wrap_future(running)
        finally:
            wanted.is_gone = True

    async def _turn(self, size: int) -> None:
        if not self._is_busy:
            self._is_busy = True
            return
        self._num_asked += 1
        turn = _Turn(size, self._num_asked, asyncio.get_running_loop().create_future())
        heapq.heappush(self._waiting, turn)
        try:
            await turn.future
        except BaseException:
            if turn in self._waiting:
                self._waiting.remove(turn)
                heapq.heapify(self._waiting)
            elif turn.future.done() and not turn.future.cancelled():
                self._next()  # it had its turn already, and does not take it
            raise

    def _rest(self, worked_s: float) -> None:
        rest_s = min(worked_s * REST_SHARE, MAX_REST_S)
        asyncio.get_running_loop().call_later(rest_s, self._next)

    def _next(self) -> None:
        while self._waiting:
            turn = heapq.heappop(self._waiting)
            if not turn.future.done():
                turn.future.set_result(None)
                return
        self._is_busy = False
