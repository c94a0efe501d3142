"""RoundCost: seconds of drafting k tokens in sequence, measured on the calls themselves."""

from itertools import pairwise

from paredown.engine.speculate.measured_step_cost import Least

# With only one draft length measured, each further token costs this share of its mean per token.
_SHARE_BEYOND = 0.5


class RoundCost:
    """Keeps the minimum by k. Estimates are linear between and above known lengths, and
    proportional below the shortest. They are 0 where nothing is known."""

    def __init__(self) -> None:
        self._seconds: dict[int, Least] = {}

    def observe(self, num_rounds: int, seconds: float) -> None:
        self._seconds.setdefault(num_rounds, Least()).add(seconds)

    def estimates(self, max_rounds: int) -> list[float]:
        """Returns the seconds of 1, 2, and so on up to `max_rounds` tokens."""
        known = {k: found.value for k, found in sorted(self._seconds.items()) if found.is_known}
        if not known:
            return [0.0] * max_rounds
        lengths = list(known)
        first, last = lengths[0], lengths[-1]
        slope = _SHARE_BEYOND * known[first] / first
        if last > first:
            slope = max(known[last] - known[first], 0.0) / (last - first)
        found = [known[first] * k / first for k in range(1, min(first, max_rounds) + 1)]
        for below, above in pairwise(lengths):
            rise = (known[above] - known[below]) / (above - below)
            found += [known[below] + rise * (k - below) for k in range(below + 1, above + 1)]
        found += [known[last] + slope * (k - last) for k in range(last + 1, max_rounds + 1)]
        return found[:max_rounds]
