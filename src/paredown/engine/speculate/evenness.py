"""Evenness: whether drafting helps all requests of a batch alike, or some of them not at all.

Where nobody waits for a place, a request that ends sooner than the others only leaves a smaller
batch; all have ended when the slowest has. What counts in full is what all gain.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

# Calls that are taken to have gone for a request as for all, before its own are counted.
_PRIOR_CALLS = 0.5
_FADING = 0.995


@dataclass(slots=True)
class _Calls:
    """The calls of a proposer: how many found something to propose."""

    num_found: float = 0.0
    num_calls: float = 0.0

    def add(self, is_found: bool, fading: float = 1.0) -> None:
        self.num_found = self.num_found * fading + is_found
        self.num_calls = self.num_calls * fading + 1


@dataclass(kw_only=True)
class Evenness:
    _overall: _Calls = field(default_factory=_Calls)
    _requests: dict[int, _Calls] = field(default_factory=dict)

    def observe(self, request_id: int, is_found: bool) -> None:
        """Draft tokens were asked for, and found or not."""
        self._overall.add(is_found, _FADING)
        self._requests.setdefault(request_id, _Calls()).add(is_found)

    def forget(self, request_id: int) -> None:
        self._requests.pop(request_id, None)

    def value(self, rates: Mapping[int, float]) -> float:
        """From 0 to 1: the probability that the next token of a request is found and drafted right,
        of the request where it is least beside the mean. `rates` are those of draft tokens that
        were found, by request id."""
        overall = self._overall
        if len(rates) < 2 or not overall.num_found:
            return 1.0
        usual = overall.num_found / overall.num_calls
        chances = []
        for request_id, rate in rates.items():
            one = self._requests.get(request_id, _Calls())
            found = one.num_found + _PRIOR_CALLS * usual
            chances.append(rate * found / (one.num_calls + _PRIOR_CALLS))
        # What was found long ago counts for so little in the end that products of it are zero.
        total = sum(chances)
        return min(chances) * len(chances) / total if total > 0.0 else 1.0
