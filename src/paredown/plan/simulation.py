"""Simulation: the results of a simulated load, with latencies, goodput and use of the machines."""

import math
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from paredown.errors import ConfigError

# The share of requests that must meet each limit.
MET_SHARE = 0.95


@dataclass(frozen=True, kw_only=True)
class LatencyLimits:
    """Limits in seconds on a request's whole answer, its first token, and the time between two
    tokens; None means no limit. Raises ConfigError."""

    e2e_s: float | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("end", self.e2e_s), ("first token", self.ttft_s)):
            if value is not None and not 0 < value <= 1e6:
                raise ConfigError(
                    f"the time to the {name} is out of range",
                    seen=f"{value:g} s",
                    remedy="Use more than 0 s, as in 3s or 250ms.",
                )
        if self.tpot_s is not None and not 0 < self.tpot_s <= 1e6:
            raise ConfigError(
                "the time between tokens is out of range",
                seen=f"{self.tpot_s:g} s",
                remedy="Use more than 0 s, as in 50ms.",
            )


class Lateness:
    """Counts the requests beyond each limit, of `num_requests`. It `is_hopeless` once more of them
    exceed a limit than `MET_SHARE` allows."""

    def __init__(self, limits: LatencyLimits, num_requests: int) -> None:
        self._limits = tuple(
            float("inf") if one is None else one
            for one in (limits.e2e_s, limits.ttft_s, limits.tpot_s)
        )
        self._num_late = [0, 0, 0]
        self._most = math.ceil((1 - MET_SHARE) * num_requests)
        self.is_hopeless = False

    def note(self, *seconds: float) -> None:
        """Records the seconds to the last token, to the first, and between two."""
        for number, (one, limit) in enumerate(zip(seconds, self._limits, strict=True)):
            if one > limit:
                self._num_late[number] += 1
                self.is_hopeless |= self._num_late[number] > self._most


class Distribution:
    """A distribution of seconds; all figures are 0 if it is empty."""

    def __init__(self, seconds: "array[float] | list[float]") -> None:
        self.sorted_s = sorted(seconds)

    def quantile(self, share: float) -> float:
        """Returns the smallest value that this share of the values does not exceed."""
        if not self.sorted_s:
            return 0.0
        rank = max(-int(-share * len(self.sorted_s) // 1), 1)
        return self.sorted_s[min(rank, len(self.sorted_s)) - 1]

    def share_within(self, limit_s: float) -> float:
        return bisect_right(self.sorted_s, limit_s) / max(len(self.sorted_s), 1)

    @property
    def mean(self) -> float:
        return sum(self.sorted_s) / max(len(self.sorted_s), 1)

    def as_json(self) -> dict[str, float]:
        quantiles = {f"p{100 * share:g}_s": self.quantile(share) for share in (0.5, 0.95, 0.99)}
        return {"mean_s": self.mean, **quantiles}


@dataclass(slots=True)
class Moment:
    """The state of all machines together; `kv_share` of all pages are held."""

    time_s: float
    num_waiting: int
    num_running: int
    kv_share: float


@dataclass(kw_only=True)
class Simulation:
    """The times of the requests that were computed to their end, in the order of their ends,
    without those of the warm-up. `tpots_s` leaves out answers of one token, for which the others
    have -1.

    `num_hits` requests were answered by the response cache, `num_refused` found a full queue, and
    `num_too_long` can never be served. A simulation that `is_hopeless` was stopped early.
    """

    ttfts_s: "array[float]" = field(default_factory=lambda: array("d"))
    e2es_s: "array[float]" = field(default_factory=lambda: array("d"))
    tpots_s: "array[float]" = field(default_factory=lambda: array("d"))
    moments: list[Moment] = field(default_factory=list)
    num_requests: int = 0
    num_hits: int = 0
    num_refused: int = 0
    num_too_long: int = 0
    num_preemptions: int = 0
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    num_queried_tokens: int = 0
    num_hit_tokens: int = 0
    num_steps: int = 0
    num_step_tokens: int = 0
    # The sum over the machines.
    busy_s: float = 0.0
    num_replicas: int = 1
    is_hopeless: bool = False
    # From the first arrival to the end of the last answer, including the warm-up.
    duration_s: float = 0.0
    # Time integral of the number of requests in the machines, including the warm-up.
    request_seconds: float = 0.0

    @cached_property
    def ttft(self) -> Distribution:
        return Distribution(self.ttfts_s)

    @cached_property
    def e2e(self) -> Distribution:
        return Distribution(self.e2es_s)

    @cached_property
    def tpot(self) -> Distribution:
        return Distribution([one for one in self.tpots_s if one >= 0])

    @property
    def utilization(self) -> float:
        """The share of the time in which a machine computed."""
        return self.busy_s / (self.duration_s * self.num_replicas) if self.duration_s else 0.0

    @property
    def prefix_hit_rate(self) -> float:
        return self.num_hit_tokens / self.num_queried_tokens if self.num_queried_tokens else 0.0

    def meets(self, limits: LatencyLimits, share: float = MET_SHARE) -> bool:
        """Returns whether this share of the requests that reached a machine meets each limit.
        Refused requests meet none."""
        num_refused = self.num_refused + self.num_too_long
        if self.is_hopeless:
            return False
        if not self.e2es_s:
            return not num_refused
        counted = share * (1 + num_refused / len(self.e2es_s))
        pairs = ((self.e2e, limits.e2e_s), (self.ttft, limits.ttft_s), (self.tpot, limits.tpot_s))
        return counted <= 1 and all(
            limit is None or not one.sorted_s or one.quantile(counted) <= limit
            for one, limit in pairs
        )

    def goodput(self, limits: LatencyLimits) -> float:
        """Returns the share of the requests that reached a machine and met all limits."""
        e2e_s, ttft_s, tpot_s = (
            float("inf") if one is None else one
            for one in (limits.e2e_s, limits.ttft_s, limits.tpot_s)
        )
        num_good = sum(
            e2e <= e2e_s and ttft <= ttft_s and tpot <= tpot_s
            for e2e, ttft, tpot in zip(self.e2es_s, self.ttfts_s, self.tpots_s, strict=True)
        )
        total = len(self.e2es_s) + self.num_refused + self.num_too_long
        return num_good / total if total else 1.0

    def summary(self, limits: LatencyLimits | None = None) -> dict[str, Any]:
        """Returns all figures except the single values."""
        counts = ("requests", "hits", "refused", "too_long", "preemptions", "replicas", "steps")
        return {
            "ttft": self.ttft.as_json(),
            "tpot": self.tpot.as_json(),
            "e2e": self.e2e.as_json(),
            "goodput": None if limits is None else self.goodput(limits),
            "utilization": self.utilization,
            "prefix_hit_rate": self.prefix_hit_rate,
            "duration_s": self.duration_s,
            "num_prompt_tokens": self.num_prompt_tokens,
            "num_output_tokens": self.num_output_tokens,
            **{f"num_{name}": getattr(self, f"num_{name}") for name in counts},
        }
