"""Starts and stops a worker on what somebody lends it, from asyncio."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from paredown.engine.model_thread import Status

# Takes back what was lent; called once the worker's thread no longer uses it.
TakeBack = Callable[[], None]


class StoppableWorker(Protocol):
    """A thread that owns a model."""

    @property
    def status(self) -> Status: ...

    def start(self, on_change: Callable[[], None] | None = None) -> None: ...

    def stop(self) -> None: ...


W = TypeVar("W", bound=StoppableWorker)


async def start_lent(worker: W, take_back: TakeBack) -> W:
    """Starts the worker and returns it once its status has changed. Cancelled, it ends it again."""
    changed = asyncio.Event()
    worker.start(changed.set)
    try:
        await changed.wait()
    except BaseException:
        _leave(worker, take_back)
        raise
    return worker


async def stop_lent(worker: StoppableWorker, take_back: TakeBack) -> None:
    """Stops the worker after what it is computing."""
    try:
        await asyncio.to_thread(worker.stop)
    finally:
        _leave(worker, take_back)


def _leave(worker: StoppableWorker, take_back: TakeBack) -> None:
    worker.stop()
    if worker.status in ("stopped", "dead"):  # not where a step or a batch hangs
        take_back()
