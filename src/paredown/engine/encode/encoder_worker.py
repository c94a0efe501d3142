"""EncoderWorker: the thread that owns an encoder, and its interface to asyncio.

The texts of all requests are encoded together, in batches by tokens. A request gets its answer when
its last text is computed; its errors are its own.
"""

import asyncio
import logging
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from paredown.engine.encode.batch_config import BatchConfig
from paredown.engine.encode.encode_job import EncodeJob, Row
from paredown.engine.encode.encoder_stats import EncoderStats
from paredown.engine.encode.run_batch import ModelFailedError, check_finite, encode_rows
from paredown.engine.encode.text_queue import QueuedJob, TextQueue
from paredown.engine.model_thread import ModelThread, Status, post
from paredown.engine.schedule.scheduler import QueueFullError
from paredown.errors import ParedownError
from paredown.executors.encoder_protocol import EncoderExecutor

LOGGER = logging.getLogger(__name__)
T = TypeVar("T")
# The rows of larger jobs become an answer in a thread of their own.
MAX_INLINE_TOKENS = 4096


@dataclass(eq=False, kw_only=True)
class _Ticket(QueuedJob):
    """A job and who waits for it."""

    loop: asyncio.AbstractEventLoop
    answer: "asyncio.Future[list[Row]]"


_Batch = list[tuple[_Ticket, range]]


@dataclass(frozen=True)
class _Drop:
    ticket: _Ticket


class EncoderWorker:
    """Runs an encoder. `load` makes it in the thread, so that the server answers /health
    meanwhile."""

    def __init__(
        self,
        load: Callable[[], EncoderExecutor],
        config: BatchConfig | None = None,
        *,
        stall_s: float = 30.0,
    ) -> None:
        self._load = load
        self._config = BatchConfig() if config is None else config
        self._inbox: queue.SimpleQueue[_Ticket | _Drop | None] = queue.SimpleQueue()
        self._thread = ModelThread(
            self._work, self._end, ask_to_stop=self.ask_to_stop, stall_s=stall_s
        )
        self.stats = EncoderStats()
        self.num_waiting_texts = 0
        self.num_waiting_tokens = 0
        # Used only by the thread; jobs stay in `_open` until their last text is computed.
        self._queue = TextQueue[_Ticket](self._config.max_batch_tokens)
        self._open: set[_Ticket] = set()

    @property
    def status(self) -> Status:
        """Returns "stalled" while a batch takes longer than `stall_s`, else the plain status."""
        return self._thread.status

    @property
    def failure(self) -> BaseException | None:
        """Returns what ended the thread."""
        return self._thread.failure

    def start(self, on_change: Callable[[], None] | None = None) -> None:
        """Starts the thread. `on_change` is called in the event loop once the model is loaded and
        when the thread has ended. Call it from the event loop."""
        self._thread.start(on_change)

    def ask_to_stop(self) -> None:
        """Ends the thread after the current batch; who waits gets UnavailableError."""
        self._inbox.put(None)

    def stop(self) -> None:
        """Does the same and waits for it. A batch that hangs is left behind."""
        self._thread.stop()

    async def run(self, job: EncodeJob[T], tenant: str = "") -> T:
        """Returns the job's answer; cancelled, it leaves its other texts out. Raises QueueFullError
        where too much waits, UnavailableError, and ModelFailedError."""
        rows = await self._rows(job, tenant) if job.texts else []
        if job.num_tokens <= MAX_INLINE_TOKENS:
            return job.finish(rows)
        return await asyncio.to_thread(job.finish, rows)

    def check_room(self, num_texts: int) -> None:
        """Raises UnavailableError, and QueueFullError for texts that would have no room now, before
        any work is done for them."""
        if not self._thread.is_ready:
            raise self._thread.unavailable()
        self._check_unit("texts", self.num_waiting_texts, num_texts, self._config.max_waiting_texts)

    async def _rows(self, job: EncodeJob[T], tenant: str) -> list[Row]:
        loop = asyncio.get_running_loop()
        ticket = _Ticket(job=job, tenant=tenant, loop=loop, answer=loop.create_future())
        with self._thread.door:
            if not self._thread.is_ready:
                raise self._thread.unavailable()
            texts, tokens = self._config.max_waiting_texts, self._config.max_waiting_tokens
            self._check_unit("texts", self.num_waiting_texts, len(job.texts), texts)
            self._check_unit("tokens", self.num_waiting_tokens, job.num_tokens, tokens)
            self._count(job, 1)
            self._inbox.put(ticket)
        try:
            return await ticket.answer
        except asyncio.CancelledError:
            self._inbox.put(_Drop(ticket))
            raise

    def _check_unit(self, unit: str, num_waiting: int, num_new: int, most: int) -> None:
        if num_waiting + num_new > most:
            raise QueueFullError(
                f"too many {unit} are waiting",
                seen=f"{num_waiting} waiting + {num_new} new of {most}",
                remedy="Send the request again later."
                if num_new <= most
                else f"Send at most {most} at once.",
            )

    def _count(self, job: EncodeJob[T], sign: int) -> None:
        self.num_waiting_texts += sign * len(job.texts)
        self.num_waiting_tokens += sign * job.num_tokens

    def _work(self) -> None:
        executor = self._load()
        self._thread.set_status("ready")
        while self._take_messages():
            self._thread.step_start_s = time.monotonic()
            self._run_batch(executor, self._queue.take())
            self._thread.step_start_s = None

    def _take_messages(self) -> bool:
        """Takes what has arrived, and waits where there is nothing to do. Returns False when the
        thread should end."""
        while not self._queue or not self._inbox.empty():
            message = self._inbox.get()
            if message is None:
                return False
            if isinstance(message, _Drop):
                self._queue.drop(message.ticket)
                self._close([message.ticket])
            else:
                self._open.add(message)
                self._queue.add(message)
        return True

    def _run_batch(self, executor: EncoderExecutor, batch: _Batch) -> None:
        """Encodes a batch. Where that fails, each job's part is tried by itself, so that one does
        not hurt the others."""
        try:
            self._encode(executor, batch)
        except Exception as error:  # even a bug of ours ends only this job
            if len(batch) > 1:
                for share in batch:
                    self._run_batch(executor, [share])
                return
            if not isinstance(error, ParedownError):
                LOGGER.exception("a text could not be encoded")
                error = _failed(error)
            self._refuse(batch[0][0], error)

    def _encode(self, executor: EncoderExecutor, batch: _Batch) -> None:
        texts = [ticket.job.texts[number] for ticket, taken in batch for number in taken]
        start_s = time.monotonic()
        rows = iter(encode_rows(executor, texts, batch[0][0].job.output))
        self.stats.busy_s += time.monotonic() - start_s
        self.stats.num_batches += 1
        self.stats.num_texts += len(texts)
        self.stats.num_tokens += sum(len(text.token_ids) for text in texts)
        done = []
        for ticket, taken in batch:
            found = dict(zip(taken, rows, strict=False))
            try:
                for row in found.values():
                    check_finite(row)
            except ModelFailedError as error:
                self._refuse(ticket, error)
                continue
            ticket.rows |= {number: ticket.job.keep(number, row) for number, row in found.items()}
            if len(ticket.rows) == len(ticket.job.texts):
                done.append(ticket)
        self._answer(done)

    def _answer(self, done: list[_Ticket]) -> None:
        waited_for = [ticket for ticket in done if ticket in self._open]
        self.stats.num_requests += len(waited_for)
        self._close(waited_for)
        post([(ticket.loop, partial(_set, ticket)) for ticket in waited_for])

    def _refuse(self, ticket: _Ticket, error: Exception) -> None:
        self._queue.drop(ticket)
        if ticket in self._open:
            self._close([ticket])
            post([(ticket.loop, partial(_fail, ticket, error))])

    def _close(self, tickets: list[_Ticket]) -> None:
        with self._thread.door:
            for ticket in tickets:
                if ticket in self._open:
                    self._open.remove(ticket)
                    self._count(ticket.job, -1)

    def _end(self, status: Status) -> None:
        """Tells everybody who waits, also those in the inbox, that nothing more will come."""
        with self._thread.door:
            self._thread.set_status(status)
            while not self._inbox.empty():
                message = self._inbox.get()
                if isinstance(message, _Ticket):
                    self._open.add(message)
        tickets = list(self._open)
        self._close(tickets)
        error = self._thread.gone(status)
        post([(ticket.loop, partial(_fail, ticket, error)) for ticket in tickets])


def _failed(error: Exception) -> ModelFailedError:
    failed = ModelFailedError(
        "the model failed at this text",
        seen=f"{type(error).__name__}: {error}",
        remedy="Send another text; the log has the details.",
    )
    failed.__cause__ = error
    return failed


def _set(ticket: _Ticket) -> None:
    if not ticket.answer.done():  # its caller may have gone
        ticket.answer.set_result([ticket.rows[number] for number in range(len(ticket.rows))])


def _fail(ticket: _Ticket, error: Exception) -> None:
    if not ticket.answer.done():
        ticket.answer.set_exception(error)
