"""MeasuredStepCost: seconds of a step by its number of tokens, from the steps themselves."""

import statistics
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from itertools import accumulate

# Sizes of steps that are told apart: every small one, because kernels change their form there, then
# four to each doubling.
_SIZES: list[int] = [*range(1, 18), *((1 << i) * k for i in range(2, 12) for k in (5, 6, 7, 8))]
_NUM_SAMPLES = 9
# Fewer may be anything.
_MIN_SAMPLES = 3
# Samples so many steps old do not count beside a new one; without a new one they do for a while.
_STALE_STEPS = 16
_FORGET_STEPS = 500


class Least:
    """The least of the last few values: what is in the way only ever adds to a time. 0 while there
    are too few."""

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=_NUM_SAMPLES)
        self.value = 0.0

    @property
    def is_known(self) -> bool:
        return self.value > 0

    def add(self, value: float) -> None:
        self._values.append(value)
        if len(self._values) >= _MIN_SAMPLES:
            self.value = min(self._values)

    @property
    def median(self) -> float:
        """The median of the last few values; the least where there are too few."""
        return statistics.median(self._values) if len(self._values) >= _MIN_SAMPLES else self.value

    def start_anew(self) -> None:
        """Drops the values; the least of them stays until there are enough new ones."""
        self._values.clear()


class MeasuredStepCost:
    """The least by size, and no more than that of any larger one. Between two known sizes the
    seconds are on a line, and above the largest known one on the line from the smallest to it, up
    to twice its size.

    Samples of a size belong together when they were taken near in time: after `_STALE_STEPS` steps
    without that size the old ones make way for new ones, since a neighbour may have come to the
    machine, or gone.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, Least] = {}
        self._last_seen: dict[int, int] = {}
        self._num_steps = 0
        # Sizes and their seconds as `_least_by_size` finds them, until one of the seconds changes.
        self._curve: tuple[list[int], list[float]] | None = None

    def observe(self, num_tokens: int, seconds: float) -> None:
        size = _size(num_tokens)
        self._num_steps += 1
        found = self._seconds.setdefault(size, Least())
        if found.is_known and self._age(size) > _STALE_STEPS:
            found.start_anew()
        known_s = found.value
        found.add(seconds)
        if found.value != known_s:
            self._curve = None
        self._last_seen[size] = self._num_steps
        if self._num_steps % _FORGET_STEPS == 0:
            for old in [one for one in self._seconds if self._age(one) >= _FORGET_STEPS]:
                del self._seconds[old], self._last_seen[old]
            self._curve = None

    def is_known(self, num_tokens: int) -> bool:
        """Whether steps of about this size were seen."""
        found = self._seconds.get(_size(num_tokens))
        return found is not None and found.is_known

    def is_within(self, num_tokens: int) -> bool:
        """Whether steps of about this size were seen, or smaller and larger ones."""
        known, _ = self._least_by_size()
        return self.is_known(num_tokens) or (bool(known) and known[0] <= num_tokens <= known[-1])

    def typical(self, num_tokens: int) -> float:
        """The median of the last steps of this size; what is estimated where there are none."""
        found = self._seconds.get(_size(num_tokens))
        if found is not None and found.is_known:
            return found.median
        return next(self.estimates(num_tokens, 0), 0.0)

    def saved_share(self, num_tokens: int) -> float:
        """What a token less in a step saves, as a share of what one takes on average: 0 where the
        weights bind, 1 where arithmetic does, and 0 while no smaller steps were seen."""
        known, _ = self._least_by_size()
        step_s = self.typical(num_tokens)
        if not known or known[0] >= num_tokens or not step_s:
            return 0.0
        saved_s = max(step_s - self.typical(known[0]), 0.0) / (num_tokens - known[0])
        return min(saved_s * num_tokens / step_s, 1.0)

    def estimates(self, num_tokens: int, max_more: int) -> Iterator[float]:
        """Seconds of steps of `num_tokens`, one more, and so on up to `max_more` more, or to where
        a step would be a leap in the dark. Empty when nothing is known."""
        known, seconds = self._least_by_size()
        if not known:
            return
        index, smallest, largest = bisect_left(known, num_tokens), known[0], known[-1]
        slope = (seconds[-1] - seconds[0]) / max(largest - smallest, 1)
        for size in range(num_tokens, min(num_tokens + max_more, max(2 * largest, num_tokens)) + 1):
            if size > largest:
                yield seconds[-1] + (size - largest) * slope
                continue
            index += known[index] < size
            above = seconds[index]
            if index == 0:
                yield above
                continue
            below, width = seconds[index - 1], known[index] - known[index - 1]
            yield above - (known[index] - size) / width * (above - below)

    def _least_by_size(self) -> tuple[list[int], list[float]]:
        """The sizes that are known, and the seconds of each: no more than those of a larger one."""
        if self._curve is None:
            known = sorted(size for size, found in self._seconds.items() if found.is_known)
            values = [self._seconds[size].value for size in known]
            self._curve = known, list(accumulate(reversed(values), min))[::-1]
        return self._curve

    def _age(self, size: int) -> int:
        return self._num_steps - self._last_seen.get(size, self._num_steps)


def _size(num_tokens: int) -> int:
    return _SIZES[min(bisect_left(_SIZES, num_tokens), len(_SIZES) - 1)]
