"""The times of a batch, which all engines that encode measure alike."""

from collections.abc import Callable

from benchmarks.clock import CLOCKS, Clock


def timed(
    encode: Callable[[list[str]], object], texts: list[str], num_times: int, clock: Clock
) -> list[float]:
    """Returns the seconds of each of so many calls, one after another."""
    now, found = CLOCKS[clock], []
    for _ in range(num_times):
        started = now()
        encode(texts)
        found.append(now() - started)
    return found
