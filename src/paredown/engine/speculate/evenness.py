"""Evenness: whether drafting helps all requests of a batch alike.

While nobody waits for a place, a request that ends early only leaves a smaller batch, and the batch
ends with its slowest request. Only a gain that all requests share counts in full.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

# Each request starts with this many calls at the success rate of all requests.
_PRIOR_CALLS = 0.5
_FADING = 0.995


@dataclass(slots=True)
class _Calls:
    """A proposer's calls, and how many of them found something."""

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
        """Records whether a request for draft tokens found any."""
        self._overall.add(is_found, _FADING)
        self._requests.setdefault(request_id, _Calls()).add(is_found)

    def forget(self, request_id: int) -> None:
        self._requests.pop(request_id, None)

    def value(self, rates: Mapping[int, float]) -> float:
        """Returns, from 0 to 1, the lowest probability over the requests that the next token is
        found and drafted correctly, divided by their mean. `rates` are the acceptance rates of
        found draft tokens by request id."""
        overall = self._overall
        if len(rates) < 2 or not overall.num_found:
            return 1.0
        usual = overall.num_found / overall.num_calls
        chances = []
        for request_id, rate in rates.items():
            one = self._requests.get(request_id, _Calls())
            found = one.num_found + _PRIOR_CALLS * usual
            chances.append(rate * found / (one.num_calls + _PRIOR_CALLS))
        # Old observations fade so far that their products can become zero.
        total = sum(chances)
        return min(chances) * len(chances) / total if total > 0.0 else 1.0
