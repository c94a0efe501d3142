"""ModelThread: the thread that owns a model, and its state as other threads see it."""

import asyncio
import atexit
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Literal, TypeVar

from paredown.errors import ParedownError

LOGGER = logging.getLogger(__name__)
STOP_TIMEOUT_S = 10.0
Status = Literal["loading", "ready", "stalled", "stopped", "dead"]
T = TypeVar("T")


class UnavailableError(ParedownError):
    """The model cannot answer: it is still loading, stopping, or its thread has died. `__cause__`
    says of what."""


class ModelThread:
    """Runs `work`, which loads the model, calls `set_status("ready")` and serves until it is asked
    to stop. Whatever ends it, `end` is called with the last status, sets it while it holds `door`,
    and tells everybody who waits."""

    def __init__(
        self,
        work: Callable[[], None],
        end: Callable[[Status], None],
        *,
        ask_to_stop: Callable[[], None],
        stall_s: float,
    ) -> None:
        self._work = work
        self._end = end
        self._ask_to_stop = ask_to_stop
        self._stall_s = stall_s
        self._thread = threading.Thread(target=self._run, name="paredown-engine", daemon=True)
        # Held while the status is read and acted upon, so that no message reaches a thread that
        # has ended.
        self.door = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_change: Callable[[], None] | None = None
        self._status: Status = "loading"
        self.failure: BaseException | None = None
        # The start of the current step; None between steps.
        self.step_start_s: float | None = None

    @property
    def status(self) -> Status:
        """Returns "stalled" while a step takes longer than `stall_s`, else the plain status."""
        start_s = self.step_start_s
        if self.is_ready and start_s is not None and time.monotonic() - start_s > self._stall_s:
            return "stalled"
        return self._status

    @property
    def is_ready(self) -> bool:
        """Returns whether the thread takes messages, even while a step of it hangs."""
        return self._status == "ready"

    def start(self, on_change: Callable[[], None] | None = None) -> None:
        """Starts the thread. `on_change` is called in the event loop once the model is loaded and
        when the thread has ended. Call it from the event loop."""
        self._loop = asyncio.get_running_loop()
        self._on_change = on_change
        # An exiting interpreter must not free memory that a step still uses.
        atexit.register(self.stop)
        self._thread.start()

    def stop(self) -> None:
        """Asks the thread to stop and waits for it. A step that hangs is left behind."""
        atexit.unregister(self.stop)
        self._ask_to_stop()
        self._thread.join(STOP_TIMEOUT_S)

    def set_status(self, status: Status) -> None:
        """Sets the status and tells the event loop. Called by the thread alone."""
        self._status = status
        self.step_start_s = None
        if self._on_change is not None:
            assert self._loop is not None
            call_in(self._loop, self._on_change)

    def loaded(self, model: T | None) -> T:
        """Returns `model`. Raises UnavailableError where there is none yet."""
        if model is None:
            raise self.unavailable()
        return model

    def unavailable(self) -> UnavailableError:
        """Returns the error for whoever asks in vain."""
        return self._explained("the model cannot answer now", self.status, "Try again later.")

    def gone(self, status: Status) -> UnavailableError:
        """Returns the error for whoever waited when the thread ended."""
        return self._explained("the model can no longer answer", status, "Start it again.")

    def _explained(self, what: str, status: Status, remedy: str) -> UnavailableError:
        error = UnavailableError(what, seen=status, remedy=remedy)
        error.__cause__ = self.failure
        return error

    def _run(self) -> None:
        try:
            self._work()
            self._end("stopped")
        except BaseException as error:  # reported, so that nobody waits in vain
            self.failure = error
            self._end("dead")
            if not isinstance(error, ParedownError):
                LOGGER.exception("the engine's thread has died")


def post(calls: list[tuple[asyncio.AbstractEventLoop, Callable[[], None]]]) -> None:
    """Makes each call in its event loop; those of one loop in one go, in order."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = {}
    for loop, call in calls:
        by_loop.setdefault(loop, []).append(call)
    for loop, some in by_loop.items():
        call_in(loop, partial(_call_all, some))


def call_in(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Calls `function` in the loop, unless the loop is closed and nobody waits there."""
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:
        if not loop.is_closed():
            raise


def _call_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()
