"""RoundCost: seconds of drafting k tokens one after the other, from the calls themselves."""

from itertools import pairwise

from paredown.engine.speculate.measured_step_cost import Least

# Where one length of drafts was measured alone, a token more takes this share of the mean of those.
_SHARE_BEYOND = 0.5


class RoundCost:
    """The least by k. Between two known lengths the seconds are on a line, and on the same one
    above; below the shortest one in proportion. 0 where nothing is known."""

    def __init__(self) -> None:
        self._seconds: dict[int, Least] = {}

    def observe(self, num_rounds: int, seconds: float) -> None:
        self._seconds.setdefault(num_rounds, Least()).add(seconds)

    def estimates(self, max_rounds: int) -> list[float]:
        """Seconds of 1, 2, and so on up to `max_rounds`."""
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
