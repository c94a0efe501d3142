"""Histogram: how often values were at most so large, as Prometheus counts."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


class Histogram:
    """`bounds` are the upper ends of the buckets, in order; a last one without end is added. One
    thread observes; another may read, and sees counts of a moment that differ by what was observed
    meanwhile."""

    def __init__(self, bounds: Sequence[float]) -> None:
        assert list(bounds) == sorted(set(bounds))
        self.bounds = tuple(bounds)
        self.sum = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        """Counts a value that came `times` times."""
        self._counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def cumulative(self) -> list[int]:
        """Returns how many values were at most each bound, and last how many there were."""
        return list(accumulate(self._counts))
