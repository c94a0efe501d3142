"""Worker: the thread that owns the engine, and its interface to asyncio.

Messages arrive through a queue that the thread empties between two steps. A step's results return
in one call to the event loop that asked. The server and AsyncLLM use it.
"""

import logging
import queue
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from paredown.engine.engine import Engine
from paredown.engine.grammar.grammars import Grammars
from paredown.engine.model_thread import ModelThread, Status, post
from paredown.engine.request import Request
from paredown.engine.request_output import RequestOutput
from paredown.engine.schedule.scheduler import QueueFullError
from paredown.engine.session import Event, Job, Session
from paredown.errors import CapacityError, ParedownError

LOGGER = logging.getLogger(__name__)
# The longest that arriving requests may delay the next step; a single prompt may take longer.
MAX_TAKING_S = 0.002


@dataclass(frozen=True)
class _Open:
    session: Session


@dataclass(frozen=True)
class _Close:
    session: Session


class Worker:
    """Runs the engine. `load` builds it in the thread, so that the server answers /health
    meanwhile."""

    def __init__(self, load: Callable[[], Engine], *, stall_s: float = 30.0) -> None:
        self._load = load
        self._inbox: queue.SimpleQueue[_Open | _Close | None] = queue.SimpleQueue()
        self._thread = ModelThread(
            self._work, self._end, ask_to_stop=self.ask_to_stop, stall_s=stall_s
        )
        self._engine: Engine | None = None
        self._on_outputs: Callable[[list[RequestOutput]], None] | None = None
        self._num_open_answers = 0
        # Used only by the engine's thread: where the outputs of each live request go.
        self._places: dict[int, tuple[Session, int]] = {}
        # Also used only there: the submissions in progress, which take turns.
        self._openings: deque[tuple[Session, Iterator[None]]] = deque()

    @property
    def status(self) -> Status:
        """Returns "stalled" while a step takes longer than `stall_s`, else the plain status."""
        return self._thread.status

    @property
    def failure(self) -> BaseException | None:
        """Returns what ended the thread."""
        return self._thread.failure

    @property
    def engine(self) -> Engine | None:
        """Returns the engine, or None until it is loaded. It belongs to the thread; others may only
        read its counters."""
        return self._engine

    @property
    def num_open_answers(self) -> int:
        return self._num_open_answers

    def start(self, on_change: Callable[[], None] | None = None) -> None:
        """Starts the thread. `on_change` is called in the event loop once the model is loaded and
        when the thread has ended. Call it from the event loop."""
        self._thread.start(on_change)

    def observe_outputs(self, call: Callable[[list[RequestOutput]], None]) -> None:
        """Has `call` made with what each step gave out, in the engine's thread. Call it before
        `start`."""
        self._on_outputs = call

    def ask_to_stop(self) -> None:
        """Ends the thread after the current step; open sessions get UnavailableError."""
        self._inbox.put(None)

    def stop(self) -> None:
        """Does the same and waits for it. A step that hangs is left behind."""
        self._thread.stop()

    @property
    def grammars(self) -> Grammars:
        """Returns the compiler of the engine's grammars, which any thread may use. Raises
        UnavailableError before the model is loaded."""
        return self._thread.loaded(self._engine).grammars

    @property
    def max_prompt_tokens(self) -> int:
        """Returns the longest prompt in tokens. Raises UnavailableError before the model is
        loaded."""
        return self._thread.loaded(self._engine).scheduler.limits.max_prompt_tokens

    @property
    def vocab_size(self) -> int:
        """Returns the number of token ids. Raises UnavailableError before the model is loaded."""
        return self._thread.loaded(self._engine).executor.spec.vocab_size

    def check_prompt(self, num_tokens: int) -> None:
        """Raises RequestError or CapacityError for a prompt that can never be answered."""
        self._thread.loaded(self._engine).scheduler.limits.check_prompt(num_tokens)

    def admit(self, num_answers: int) -> Session:
        """Reserves places for `num_answers` answers before any work is done for them. Always close
        the session. Raises UnavailableError, QueueFullError when there is no room, and
        CapacityError for more answers than there ever is room for."""
        config = self._thread.loaded(self._engine).scheduler.config
        max_jobs = config.num_places + config.max_waiting
        if num_answers > config.max_waiting:
            raise CapacityError(
                "one request asks for more answers than may wait together",
                seen=f"{num_answers} answers, at most {config.max_waiting}",
                remedy="Ask for fewer at once, or start the server with a greater --max-waiting.",
            )
        session = Session(num_answers)
        with self._thread.door:
            if not self._thread.is_ready:
                raise self._thread.unavailable()
            if self._num_open_answers + session.num_answers > max_jobs:
                raise QueueFullError(
                    "too many requests are waiting",
                    seen=f"{self._num_open_answers} open + {session.num_answers} new of {max_jobs}",
                    remedy="Send the request again later.",
                )
            self._num_open_answers += session.num_answers
        return session

    def submit(self, session: Session, jobs: list[Job]) -> None:
        """Hands the jobs of an admitted session to the engine. Raises UnavailableError."""
        assert session.num_answers == sum(job.params.n for job in jobs)
        with self._thread.door:
            if not self._thread.is_ready:
                raise self._thread.unavailable()
            session.jobs = jobs
            self._inbox.put(_Open(session))

    def open(self, jobs: list[Job]) -> Session:
        """Admits the jobs and submits them. Always close the session."""
        session = self.admit(sum(job.params.n for job in jobs))
        try:
            self.submit(session, jobs)
        except BaseException:
            self.close(session)
            raise
        return session

    def close(self, session: Session) -> None:
        """Cancels what is unfinished, within one step. The session counts as open until then;
        otherwise clients that hang up during a long step could flood the inbox with jobs. Closing
        again does nothing."""
        with self._thread.door:
            if session.is_closed:
                return
            session.is_closed = True
            if session.jobs and session.num_unfinished and self._thread.is_ready:
                self._inbox.put(_Close(session))
            else:
                self._num_open_answers -= session.num_answers

    def _work(self) -> None:
        self._engine = self._load()
        self._thread.set_status("ready")
        self._serve(self._engine)
        self._abandon(self._engine)

    def _serve(self, engine: Engine) -> None:
        num_steps = -1
        while True:
            # A step counts as stalled from the last that computed anything.
            if engine.meter.num_steps != num_steps or not engine.has_work:
                num_steps, self._thread.step_start_s = engine.meter.num_steps, None
            if not engine.has_work and not self._openings:
                message = self._inbox.get()
                self._thread.step_start_s = time.monotonic()
                if message is None:
                    return
                self._handle(engine, message)
            elif self._thread.step_start_s is None:
                self._thread.step_start_s = time.monotonic()
            if not self._take_messages(engine):
                return
            self._deliver(engine.step())

    def _take_messages(self, engine: Engine) -> bool:
        """Handles arrived messages in order, then submits for as long as a step may be delayed: a
        piece of each submission in turn, so that a short one does not wait for many long ones.
        Returns False when the thread should end."""
        end_s = time.monotonic() + MAX_TAKING_S
        while True:
            while not self._inbox.empty():
                message = self._inbox.get()
                if message is None:
                    return False
                self._handle(engine, message)
            if not self._openings:
                return True
            _, pieces = self._openings[0]
            has_ended = next(pieces, self) is self
            self._openings.rotate(-1)
            if has_ended:
                self._openings.pop()
            if time.monotonic() >= end_s:
                return True

    def _handle(self, engine: Engine, message: _Open | _Close) -> None:
        session = message.session
        if isinstance(message, _Open):
            self._openings.append((session, self._open_in_pieces(engine, session)))
        else:
            with self._thread.door:
                self._num_open_answers -= session.num_answers
            for request_id in [i for i, place in self._places.items() if place[0] is session]:
                engine.cancel(request_id)
                del self._places[request_id]

    def _open_in_pieces(self, engine: Engine, session: Session) -> Iterator[None]:
        """Submits the jobs one after the other, with steps of other requests in between, since they
        may be many and long. All are checked before the first is submitted."""
        requests: list[Request] = []
        try:
            for job in session.jobs:
                if session.is_closed:  # nobody waits for it any more
                    return
                engine.check(job.prompt_token_ids, job.params)
                yield
            engine.scheduler.check_room(session.num_answers)
            for job in session.jobs:
                if session.is_closed:
                    return
                made = engine.submit_many(job.prompt_token_ids, job.params, job.service)
                self._places |= {one.id: (session, i) for i, one in enumerate(made, len(requests))}
                requests += made
                yield
        except Exception as error:  # even a bug of ours ends only this session
            if not isinstance(error, ParedownError):
                LOGGER.exception("a request could not be submitted")
            for request in requests:
                engine.cancel(request.id)
                self._places.pop(request.id, None)
            self._post([(session, error)])

    def _deliver(self, outputs: list[RequestOutput]) -> None:
        if self._on_outputs is not None:
            self._on_outputs(outputs)
        events: dict[int, tuple[Session, list[tuple[int, RequestOutput]]]] = {}
        for output in outputs:
            place = self._places.get(output.request.id)
            if place is None:  # cancelled by its client, who has gone
                continue
            session, number = place
            events.setdefault(id(session), (session, []))[1].append((number, output))
            if output.finish_reason is not None:
                del self._places[output.request.id]
        if events:
            self._post(list(events.values()))

    def _abandon(self, engine: Engine) -> None:
        """Leaves nothing in an engine that may be used elsewhere afterwards."""
        for request_id in self._places:
            engine.cancel(request_id)
        engine.step()

    def _end(self, status: Status) -> None:
        """Tells every session, including those in the inbox, that nothing more will come."""
        sessions = {id(session): session for session, _ in self._places.values()}
        sessions |= {id(session): session for session, _ in self._openings}
        with self._thread.door:
            self._thread.set_status(status)
            while not self._inbox.empty():
                message = self._inbox.get()
                if isinstance(message, _Open):
                    sessions[id(message.session)] = message.session
                elif isinstance(message, _Close):
                    self._num_open_answers -= message.session.num_answers
        self._post([(session, self._thread.gone(status)) for session in sessions.values()])

    def _post(self, events: list[tuple[Session, Event]]) -> None:
        post([(one.loop, one.wake) for one, event in events if one.deliver(event)])
