"""StepCost: seconds of a step as a function of its number of tokens, from the steps themselves."""

import statistics
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator

# Sizes of steps that are told apart: every small one, because kernels change their form there, then
# four to each doubling.
_SIZES: list[int] = [*range(1, 18), *((1 << i) * k for i in range(2, 12) for k in (5, 6, 7, 8))]
_NUM_SAMPLES = 9
# Fewer may be anything.
_MIN_SAMPLES = 3
# Samples so many steps old do not count beside a new one; without a new one they do for a while.
_STALE_STEPS = 64
_FORGET_STEPS = 500


class Quartile:
    """The lower quartile of the last few values: what is in the way only ever adds to a time, so it
    is moved neither by an interrupted step nor by a lucky one. 0 while there are too few."""

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=_NUM_SAMPLES)
        self.value = 0.0

    @property
    def is_known(self) -> bool:
        return self.value > 0

    def add(self, value: float) -> None:
        self._values.append(value)
        if len(self._values) >= _MIN_SAMPLES:
            self.value = sorted(self._values)[(len(self._values) - 1) // 4]

    @property
    def median(self) -> float:
        """Of the last few values; 0 where there are none."""
        return statistics.median(self._values) if self._values else self.value

    def start_anew(self) -> None:
        """Drops the values; their quartile stays until there are enough new ones."""
        self._values.clear()


class StepCost:
    """Quartiles by size. Between two known sizes the seconds are on a line, and above the largest
    known one on the line from the smallest to it, up to twice its size.

    Samples of a size belong together when they were taken near in time: after `_STALE_STEPS` steps
    without that size the old ones make way for new ones, since a neighbour may have come to the
    machine, or gone.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, Quartile] = {}
        self._last_seen: dict[int, int] = {}
        self._num_steps = 0

    def observe(self, num_tokens: int, seconds: float) -> None:
        size = _size(num_tokens)
        self._num_steps += 1
        found = self._seconds.setdefault(size, Quartile())
        if self._age(size) > _STALE_STEPS:
            found.start_anew()
        found.add(seconds)
        self._last_seen[size] = self._num_steps
        if self._num_steps % _FORGET_STEPS == 0:
            for old in [one for one in self._seconds if self._age(one) >= _FORGET_STEPS]:
                del self._seconds[old], self._last_seen[old]

    def is_known(self, num_tokens: int) -> bool:
        """Whether steps of about this size were seen."""
        found = self._seconds.get(_size(num_tokens))
        return found is not None and found.is_known

    def typical(self, num_tokens: int) -> float:
        """The median of the last steps of this size, which must have been seen."""
        return self._seconds[_size(num_tokens)].median

    def estimates(self, num_tokens: int, max_more: int) -> Iterator[float]:
        """Seconds of steps of `num_tokens`, one more, and so on up to `max_more` more, or to where
        a step would be a leap in the dark. Empty when nothing is known."""
        known = sorted(size for size, found in self._seconds.items() if found.is_known)
        if not known:
            return
        index, smallest, largest = bisect_left(known, num_tokens), known[0], known[-1]
        rise = self._seconds[largest].value - self._seconds[smallest].value
        slope = max(rise, 0.0) / max(largest - smallest, 1)
        for size in range(num_tokens, min(num_tokens + max_more, max(2 * largest, num_tokens)) + 1):
            if size > largest:
                yield self._seconds[largest].value + (size - largest) * slope
                continue
            index += known[index] < size
            above = self._seconds[known[index]].value
            if index == 0:
                yield above
                continue
            below, width = self._seconds[known[index - 1]].value, known[index] - known[index - 1]
            yield above - (known[index] - size) / width * (above - below)

    def _age(self, size: int) -> int:
        return self._num_steps - self._last_seen.get(size, self._num_steps)


def _size(num_tokens: int) -> int:
    return _SIZES[min(bisect_left(_SIZES, num_tokens), len(_SIZES) - 1)]
