"""MeasuredStepCost: seconds of a step by its number of tokens, measured on the steps themselves."""

import statistics
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from itertools import accumulate

# Step sizes that are told apart: every small one, because kernels differ there, then four to each
# doubling.
_SIZES: list[int] = [*range(1, 18), *((1 << i) * k for i in range(2, 12) for k in (5, 6, 7, 8))]
_NUM_SAMPLES = 9
# Fewer samples say nothing.
_MIN_SAMPLES = 3
# Samples older than this many steps are dropped once there are new ones.
_STALE_STEPS = 16
_FORGET_STEPS = 500


class Least:
    """The minimum of the last few values, since disturbances only add time. It is 0 while there are
    too few."""

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
        """Returns the median of the last few values, or the minimum where there are too few."""
        return statistics.median(self._values) if len(self._values) >= _MIN_SAMPLES else self.value

    def start_anew(self) -> None:
        """Drops the values; their minimum stays until there are enough new ones."""
        self._values.clear()


class MeasuredStepCost:
    """Keeps the minimum by size, capped by that of any larger size. Estimates are linear between
    known sizes. Above the largest, up to twice its size, they follow the line through the smallest
    and the largest.

    Samples of a size belong together if they are close in time. After `_STALE_STEPS` steps without
    that size, new samples replace old ones, since the load on the machine may have changed.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, Least] = {}
        self._last_seen: dict[int, int] = {}
        self._num_steps = 0
        # The sizes and seconds of `_least_by_size`, until a value changes.
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
        """Returns whether steps of about this size were measured."""
        found = self._seconds.get(_size(num_tokens))
        return found is not None and found.is_known

    def is_within(self, num_tokens: int) -> bool:
        """Returns whether steps of about this size, or both smaller and larger ones, were
        measured."""
        known, _ = self._least_by_size()
        return self.is_known(num_tokens) or (bool(known) and known[0] <= num_tokens <= known[-1])

    def typical(self, num_tokens: int) -> float:
        """Returns the median of the last steps of this size, or an estimate where there are
        none."""
        found = self._seconds.get(_size(num_tokens))
        if found is not None and found.is_known:
            return found.median
        return next(self.estimates(num_tokens, 0), 0.0)

    def saved_share(self, num_tokens: int) -> float:
        """Returns the time that one token less saves, as a share of an average token's time. It is
        0 where reading weights is the limit, 1 where arithmetic is, and 0 while no smaller steps
        were measured."""
        known, _ = self._least_by_size()
        step_s = self.typical(num_tokens)
        if not known or known[0] >= num_tokens or not step_s:
            return 0.0
        saved_s = max(step_s - self.typical(known[0]), 0.0) / (num_tokens - known[0])
        return min(saved_s * num_tokens / step_s, 1.0)

    def estimates(self, num_tokens: int, max_more: int) -> Iterator[float]:
        """Yields the seconds of steps of `num_tokens`, one more, and so on up to `max_more` more,
        or until an estimate would extrapolate too far. Yields nothing when nothing is known."""
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
        """Returns the known sizes and their seconds, each capped by that of a larger size."""
        if self._curve is None:
            known = sorted(size for size, found in self._seconds.items() if found.is_known)
            values = [self._seconds[size].value for size in known]
            self._curve = known, list(accumulate(reversed(values), min))[::-1]
        return self._curve

    def _age(self, size: int) -> int:
        return self._num_steps - self._last_seen.get(size, self._num_steps)


def _size(num_tokens: int) -> int:
    return _SIZES[min(bisect_left(_SIZES, num_tokens), len(_SIZES) - 1)]
