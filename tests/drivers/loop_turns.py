"""How long the turns of event loops take: what one takes, all others wait for."""

import asyncio.events
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def watched_turns() -> Iterator[list[float]]:
    """The seconds of processor time that each call took which an event loop made meanwhile: a busy
    machine makes them no longer. Collections do not walk over what the tests have loaded."""
    taken, run = list[float](), asyncio.events.Handle._run

    def timed(handle: asyncio.events.Handle) -> None:
        start_s = time.thread_time()
        run(handle)
        taken.append(time.thread_time() - start_s)

    gc.collect()
    gc.freeze()
    asyncio.events.Handle._run = timed  # type: ignore[method-assign]
    try:
        yield taken
    finally:
        asyncio.events.Handle._run = run  # type: ignore[method-assign]
        gc.unfreeze()
