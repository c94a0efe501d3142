"""Session: the answers of one request, as its event loop gets them from the engine's thread."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from paredown.engine.packed_logprobs import PackedLogprobs
from paredown.engine.request_output import RequestOutput
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.service import Service

# The most steps of an answer that its reader gets at once.
MAX_BATCH_STEPS = 64
Event = list[tuple[int, RequestOutput]] | Exception


@dataclass(frozen=True)
class Job:
    """One prompt to continue, `params.n` times. A session numbers its answers from 0."""

    prompt_token_ids: list[int]
    params: SamplingParams
    service: Service = field(default_factory=Service)


class Session:
    """The answers of one HTTP request, whose jobs are accepted or refused together. It belongs to
    the event loop in which it was made; the engine's thread only calls `deliver`.

    To wake a thread takes as long as a step of a small model. So the loop is woken for the last
    piece of an answer, and for another one only when the reader waits for it.
    """

    def __init__(self, num_answers: int) -> None:
        # Empty while places are taken before the request's texts are read.
        self.jobs: list[Job] = []
        self.loop = asyncio.get_running_loop()
        self.num_answers = self.num_unfinished = num_answers
        self.is_closed = False
        self._events = deque[Event]()
        self._waiter: asyncio.Future[None] | None = None
        # Whether the reader waits for any event, and not for a time.
        self._is_awaiting = False
        self._first: list[tuple[int, RequestOutput]] = []

    def deliver(self, event: Event) -> bool:
        """Adds what the engine returned or raised. Returns whether `wake` must be called in the
        loop. Log-probabilities that wait for long are packed."""
        if len(self._events) >= MAX_BATCH_STEPS and not isinstance(event, Exception):
            for _, output in event:
                if output.logprobs:
                    output.logprobs = PackedLogprobs(output.logprobs)
        # In this order: the reader says that it waits, and then looks whether there is anything.
        self._events.append(event)
        return self._is_awaiting or _ends_an_answer(event)

    def wake(self) -> None:
        """Has the reader look for events."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def start(self) -> None:
        """Waits for the first piece of an answer. Raises the engine's error if it refused the
        jobs."""
        self._first = await self._receive()

    async def outputs(self) -> AsyncGenerator[tuple[int, RequestOutput], None]:
        """Yields (number, piece) until every answer has had its last piece."""
        async for batch in self.batches():
            for one in batch:
                yield one

    async def batches(
        self, interval: Callable[[], float] = float
    ) -> AsyncGenerator[list[tuple[int, RequestOutput]], None]:
        """Yields everything that has come, in order, until every answer has had its last piece. A
        batch comes no sooner than so many seconds after the one before it as `interval` says then,
        unless an answer ends. A reader that is slower than the engine gets several steps at once.
        The event loop has a turn after each batch, so that a client is seen to hang up."""
        batch, self._first = self._first, []
        while True:
            if batch:
                self.num_unfinished -= sum(output.finish_reason is not None for _, output in batch)
                due_s = self.loop.time() + interval()
                yield batch
            if not self.num_unfinished:
                return
            if batch:
                await self._rest(due_s)
            batch = await self._receive()
            for _ in range(MAX_BATCH_STEPS - 1):
                if not self._events or isinstance(event := self._events[0], Exception):
                    break
                batch += event
                self._events.popleft()

    async def _rest(self, end_s: float) -> None:
        """Waits for a time, or for the end of an answer."""
        events = list(self._events)
        is_due = len(events) >= MAX_BATCH_STEPS or any(map(_ends_an_answer, events))
        if is_due or end_s <= self.loop.time():
            if events:
                await asyncio.sleep(0)
            return
        timer = self.loop.call_at(end_s, self.wake)
        try:
            await self._wait()
        finally:
            timer.cancel()

    async def _receive(self) -> list[tuple[int, RequestOutput]]:
        while not self._events:
            self._is_awaiting = True
            try:
                if not self._events:
                    await self._wait()
            finally:
                self._is_awaiting = False
        event = self._events.popleft()
        if isinstance(event, Exception):
            raise event
        return event

    async def _wait(self) -> None:
        self._waiter = self.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


def _ends_an_answer(event: Event) -> bool:
    if isinstance(event, Exception):
        return True
    return any(output.finish_reason is not None for _, output in event)
