"""The times of a batch, which all engines that encode measure alike."""

import time
from collections.abc import Callable


def timed(encode: Callable[[list[str]], object], texts: list[str], num_times: int) -> list[float]:
    """Returns the seconds of each of so many calls, one after another."""
    found = []
    for _ in range(num_times):
        started = time.perf_counter()
        encode(texts)
        found.append(time.perf_counter() - started)
    return found
