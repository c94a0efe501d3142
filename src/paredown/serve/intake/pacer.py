"""Pacer: runs long work on the event loop in pieces, so that other tasks and threads get their
turn."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import TypeVar

T = TypeVar("T")
# The approximate length of a piece.
PIECE_S = 0.002


class Pacer:
    """Runs one piece of work at a time. After each piece the loop has as much time for other tasks,
    so nobody waits for more than a piece."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._turn = asyncio.Lock()

    async def turn(self) -> None:
        """Waits for a turn of the loop that no other caller shares; callers proceed in order, one
        per turn."""
        async with self._turn:
            await asyncio.sleep(0)

    async def pieces(self, items: Iterator[T]) -> AsyncIterator[list[T]]:
        """Yields the items in lists that each took one piece of time."""
        while True:
            async with self._lock:
                start_s = time.monotonic()
                piece = _take(items, start_s + PIECE_S)
                if not piece:
                    return
                await asyncio.sleep(time.monotonic() - start_s)
            yield piece


class Breath:
    """Yields to the loop once work has run for a piece without a break."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begins a piece: the loop has just had a turn."""
        self._end_s = time.monotonic() + PIECE_S

    @property
    def is_over(self) -> bool:
        """Returns whether others should have a turn."""
        return time.monotonic() >= self._end_s

    async def take(self) -> None:
        if self.is_over:
            await asyncio.sleep(0)
            self.begin()


def _take(items: Iterator[T], end_s: float) -> list[T]:
    taken = []
    for item in items:
        taken.append(item)
        if time.monotonic() >= end_s:
            break
    return taken
