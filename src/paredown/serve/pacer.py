"""Pacer: long work on the event loop, in pieces that leave the loop and Python's lock to others."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import TypeVar

T = TypeVar("T")
# A piece of work takes about this long.
PIECE_S = 0.002


class Pacer:
    """One piece of work runs at a time, whoever has some, and as long as it took the loop has for
    others before the next: so nobody waits for more than a piece."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._turn = asyncio.Lock()

    async def turn(self) -> None:
        """Waits for a turn of the loop that nobody else goes on in: of many who ask, each turn lets
        one go on, in their order."""
        async with self._turn:
            await asyncio.sleep(0)

    async def pieces(self, items: Iterator[T]) -> AsyncIterator[list[T]]:
        """The items in lists that took a piece each."""
        while True:
            async with self._lock:
                start_s = time.monotonic()
                piece = _take(items, start_s + PIECE_S)
                if not piece:
                    return
                await asyncio.sleep(time.monotonic() - start_s)
            yield piece


class Breath:
    """Gives the loop to others where work has gone on for a piece without that."""

    def __init__(self) -> None:
        self._end_s = time.monotonic() + PIECE_S

    async def take(self) -> None:
        if time.monotonic() >= self._end_s:
            await asyncio.sleep(0)
            self._end_s = time.monotonic() + PIECE_S


def _take(items: Iterator[T], end_s: float) -> list[T]:
    taken = []
    for item in items:
        taken.append(item)
        if time.monotonic() >= end_s:
            break
    return taken
