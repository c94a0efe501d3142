"""Measures the turns of event loops: whatever one turn takes, all other tasks wait for."""

import asyncio.events
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def watched_turns() -> Iterator[list[float]]:
    """Yields the processor seconds of each call that an event loop makes meanwhile, which do not
    depend on the machine's load. Garbage collection skips everything that the tests have loaded."""
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
