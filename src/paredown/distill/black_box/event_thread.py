"""EventThread: an event loop in a thread of its own.

A signal that ends the program raises in the main thread (cli/stop_signals.py); inside a loop it
would be logged and forgotten. And who calls may have a loop already, as a notebook does.
"""

import asyncio
from collections.abc import Coroutine
from threading import Thread
from typing import TypeVar

Result = TypeVar("Result")


class EventThread:
    """Runs coroutines one after the other; each caller waits for its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[object, object, Result]) -> Result:
        """Returns what it returns, or raises what it raises. It is cancelled where the wait for it
        is interrupted."""
        waiting = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return waiting.result()
        except BaseException:
            waiting.cancel()
            raise

    def close(self) -> None:
        """Ends the thread, after what was cancelled has ended."""
        self.run(_end_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
