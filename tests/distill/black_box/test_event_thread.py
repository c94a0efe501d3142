"""Work in an event loop of its own: results, errors, interrupts, and callers with a loop."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from paredown.distill.black_box.event_thread import EventThread


@pytest.fixture
def events() -> Iterator[EventThread]:
    events = EventThread()
    yield events
    before = threading.active_count()
    events.close()
    assert threading.active_count() == before - 1


async def double(number: int) -> int:
    await asyncio.sleep(0)
    if number < 0:
        raise ValueError("negative")
    return 2 * number


def test_results_and_errors_come_back_even_beside_another_loop(events: EventThread) -> None:
    assert events.run(double(3)) == 6
    with pytest.raises(ValueError, match="negative"):
        events.run(double(-1))

    async def notebook() -> int:
        return events.run(double(4))

    assert asyncio.run(notebook()) == 8


def test_an_interrupt_cancels_what_runs(events: EventThread) -> None:
    ended = threading.Event()

    async def endless() -> None:
        try:
            while True:
                await asyncio.sleep(0.001)
        finally:
            ended.set()

    # A worker of pytest-xdist ignores the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        started_s = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            events.run(endless())
        assert ended.wait(5)
        assert time.monotonic() - started_s < 5
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
