"""Asker: puts many questions to a teacher at once, and none again that was answered."""

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from paredown.distill.black_box.answer import Answer
from paredown.distill.black_box.answer_log import AnswerLog
from paredown.distill.black_box.event_thread import EventThread
from paredown.distill.black_box.request import TeacherRequest
from paredown.distill.black_box.request_rate import RequestRate
from paredown.distill.black_box.teacher import Failure, Teacher, TeacherConfig
from paredown.distill.black_box.token_budget import TokenBudget
from paredown.distill.http.busy import MAX_WAIT_S
from paredown.errors import ConfigError, TeacherError
from paredown.units import format_count, format_duration

_MAX_TRIES = 6
# So many in a row are no accident.
_MAX_SILENT_IN_A_ROW = 8
_MAX_USELESS_IN_A_ROW = 32
KEPT = "Look after it; the same command goes on from there, with what was answered."

# Returns why nothing is to be learned from an answer; None where something is.
Fault = Callable[[Answer], str | None]


@dataclass(frozen=True, kw_only=True)
class AskLimits:
    """How a teacher may be asked.

    `concurrency`          requests at the same time
    `requests_per_minute`  requests that start in any minute, repeated ones too; None has no limit
    `max_tokens_total`     tokens of all runs for one output, questions and answers; None has no
                           limit
    `first_wait_s`         seconds before a request is repeated; each further wait is twice as long
    """

    concurrency: int = 8
    requests_per_minute: float | None = None
    max_tokens_total: int | None = None
    first_wait_s: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.concurrency <= 1024:
            raise ConfigError(
                "so many requests cannot be asked at once",
                seen=self.concurrency,
                remedy="Give --concurrency of 1 to 1024.",
            )
        if not 0 <= self.first_wait_s < math.inf:
            raise ConfigError(
                "nothing can wait that long", seen=self.first_wait_s, remedy="Wait for 1 second."
            )
        RequestRate(self.requests_per_minute)
        TokenBudget(self.max_tokens_total)


class Asker:
    """Asks in batches. The log has each answer as soon as it is there; a request that it knows is
    not sent. Failures are counted by their reason. `on_useful` is called with the worth of each
    request that has a useful answer.

    `error` is what is wrong with the teacher, once that ended the run.
    """

    def __init__(
        self,
        teacher: TeacherConfig,
        limits: AskLimits,
        log: AnswerLog,
        on_useful: Callable[[float], None] = lambda worth: None,
    ) -> None:
        self._limits = limits
        self._log = log
        self._on_useful = on_useful
        self._rate = RequestRate(limits.requests_per_minute)
        self._budget = TokenBudget(limits.max_tokens_total, log.num_tokens, log.surplus)
        self._over = asyncio.Event()
        self._settled = asyncio.Condition()
        self._teacher = Teacher(teacher, limits.concurrency)
        self._url = teacher.url()
        self._events = EventThread()
        self._num_silent = 0
        self._num_useless = 0
        self.num_requests = 0  # that were sent: each try counts
        self.num_useful = 0
        self.failures: Counter[str] = Counter()
        self.error: TeacherError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._events.run(self._teacher.close())
        finally:
            self._events.close()

    @property
    def num_tokens(self) -> int:
        """Tokens that all runs have spent."""
        return self._budget.spent

    @property
    def is_over(self) -> bool:
        """Whether nothing more is asked: the budget is spent, or the teacher is at fault."""
        return self._over.is_set()

    @property
    def is_spent(self) -> bool:
        """Whether the budget ended the run."""
        return self.is_over and self.error is None

    def ask(
        self,
        requests: Sequence[TeacherRequest],
        fault: Fault = Answer.fault,
        worth: float = 1.0,
    ) -> list[Answer | None]:
        """Returns the answer to each request. None stands where there is none, and for an answer
        that has a fault. A useful one is `worth` so many examples. Raises OutputError where the log
        cannot be written."""
        new = {one.key: one for one in requests if one.key not in self._log.answers}
        for key in {one.key for one in requests} - new.keys():
            if fault(self._log.answers[key]) is None:
                self._on_useful(worth)
        if new and not self.is_over:
            self._events.run(self._ask_all(list(new.values()), fault, worth))
        useful: dict[str, Answer] = {}
        for key in dict.fromkeys(one.key for one in requests):
            answer = self._log.answers.get(key)
            reason = None if answer is None else fault(answer)
            if reason is not None:
                self.failures[reason] += 1
            elif answer is not None:
                useful[key] = answer
                self.num_useful += 1
        return [useful.get(one.key) for one in requests]

    async def _ask_all(
        self, requests: Sequence[TeacherRequest], fault: Fault, worth: float
    ) -> None:
        waiting = iter(requests)

        async def work() -> None:
            for request in waiting:
                if self.is_over:
                    return
                if await self._ask_one(request, fault):
                    self._on_useful(worth)

        num_workers = min(len(requests), self._limits.concurrency)
        workers = [asyncio.create_task(work()) for _ in range(num_workers)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _ask_one(self, request: TeacherRequest, fault: Fault) -> bool:
        """Asks until there is an answer or no hope of one. Returns whether a useful one came."""
        wait_s = self._limits.first_wait_s
        for num_tries in range(1, _MAX_TRIES + 1):
            reserved = await self._reserve(request)
            if reserved is None:
                break
            found = await self._try(request, reserved)
            if isinstance(found, Answer):
                reason = fault(found)
                self._judge(reason)
                return reason is None
            if found.ends_all:
                self._stop("refuses every request", _shown(found))
            elif found.wait_s is not None and found.wait_s > MAX_WAIT_S:
                self._stop(f"wants no request for {format_duration(found.wait_s)}", _shown(found))
            if self.is_over or not found.may_retry or num_tries == _MAX_TRIES:
                self._give_up(found)
                break
            # Waits differ, so that requests that failed together do not come back together.
            await self._sleep(wait_s * random.uniform(0.75, 1.25))
            wait_s *= 2
        return False

    async def _reserve(self, request: TeacherRequest) -> int | None:
        """Returns the tokens that were reserved for the request, once it may start. Returns None
        when nothing may be asked any more."""
        reserved = None
        async with self._settled:
            while not self.is_over:
                reserved = self._budget.reserve(request.most_tokens)
                if reserved is not None:
                    break
                if not self._budget.reserved:
                    self._over.set()
                else:
                    # Requests that are under way may cost less than was reserved for them.
                    await self._settled.wait()
        if reserved is None:
            return None
        await self._wait_for_turn()
        if not self.is_over:
            return reserved
        await self._settle(request, reserved, 0)
        return None

    async def _wait_for_turn(self) -> None:
        """Waits until a request may start. A pause that begins meanwhile puts it off."""
        now_s = asyncio.get_running_loop().time
        while not self.is_over:
            turn_s = self._rate.take_turn(now_s())
            await self._sleep(turn_s - now_s())
            if not self._rate.is_held(turn_s):
                return

    async def _try(self, request: TeacherRequest, reserved: int) -> Answer | Failure:
        """Sends the request once, and keeps what comes of it."""
        self._log.ask(request.key, request.most_tokens, reserved)
        self.num_requests += 1
        found = await self._teacher.ask(request)
        if isinstance(found, Answer):
            used = reserved if found.num_tokens is None else found.num_tokens
            self._log.answer(request.key, found, used)
        else:
            used = reserved if found.may_have_cost else 0
            self._log.fail(request.key, found.reason, used)
            if found.wait_s:
                now_s = asyncio.get_running_loop().time()
                self._rate.pause(now_s, min(found.wait_s, MAX_WAIT_S))
        await self._settle(request, reserved, used)
        return found

    async def _settle(self, request: TeacherRequest, reserved: int, used: int) -> None:
        async with self._settled:
            self._budget.settle(request.most_tokens, reserved, used)
            self._settled.notify_all()

    async def _sleep(self, seconds: float) -> None:
        """Waits, but not beyond the end of the run."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds)

    def _judge(self, reason: str | None) -> None:
        self._num_silent = 0
        self._num_useless = 0 if reason is None else self._num_useless + 1
        if self._num_useless >= _MAX_USELESS_IN_A_ROW:
            counted = format_count(self._num_useless, "answer")
            self._stop("says nothing of use", f"{counted} in a row, the last: {reason}")

    def _give_up(self, found: Failure) -> None:
        self.failures[found.reason] += 1
        self._num_silent += 1
        if self._num_silent >= _MAX_SILENT_IN_A_ROW:
            counted = format_count(self._num_silent, "request")
            self._stop("does not answer", f"{counted} in a row, the last: {_shown(found)}")

    def _stop(self, what: str, seen: str) -> None:
        """Asks nothing more, for a fault of the teacher. The first one is told."""
        self._over.set()
        if self.error is None:
            self.error = TeacherError(f"the teacher at {self._url} {what}", seen=seen, remedy=KEPT)


def _shown(found: Failure) -> str:
    return f"{found.reason}: {found.detail}" if found.detail else found.reason
