"""Computes the table's figures: from seconds of rounds to ratios, MBU, MFU and verdicts."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.cases import Bar


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The median of the rounds with their minimum and maximum."""

    median: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(median=statistics.median(values), min=min(values), max=max(values))


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The machine's limit from short readings around a turn: the maximum, and the mean over their
    time, which is lower where other programs interfere."""

    best: float
    mean: float

    @classmethod
    def of(cls, readings: Sequence[float]) -> "Limit":
        """Takes rates that were each measured over the same work."""
        return cls(best=max(readings), mean=statistics.harmonic_mean(readings))


@dataclass(frozen=True, kw_only=True)
class Rivalry:
    """Our rate over that of the best peer, the one with the highest median."""

    best_peer: str
    ratio: Spread


def rates(num_tokens: int, seconds: Sequence[float]) -> list[float]:
    """Returns the tokens per second of each round."""
    return [num_tokens / one for one in seconds]


def rival(ours: Sequence[float], peers: Mapping[str, Sequence[float]]) -> Rivalry | None:
    """Compares round by round, so that what slows a whole round cancels out; returns None without
    peers."""
    if not peers:
        return None
    best = max(peers, key=lambda name: statistics.median(peers[name]))
    ratios = [our / their for our, their in zip(ours, peers[best], strict=True)]
    return Rivalry(best_peer=best, ratio=Spread.of(ratios))


def decode_bytes(
    *,
    weight_bytes: int,
    kv_token_bytes: int,
    prompt_tokens: int,
    num_steps: int,
    num_sequences: int,
) -> int:
    """Returns the bytes that a step reads in the middle of a decode: all weights once, and every
    sequence's keys and values."""
    context = prompt_tokens + num_steps // 2
    return weight_bytes + num_sequences * context * kv_token_bytes


def mbu(steps_per_s: Sequence[float], step_bytes: int, bandwidths: Sequence[float]) -> list[float]:
    """Returns the model bandwidth utilization of each round, relative to that round's bandwidth."""
    return [rate * step_bytes / limit for rate, limit in zip(steps_per_s, bandwidths, strict=True)]


def mfu(
    tokens_per_s: Sequence[float], num_linear_parameters: int, peaks: Sequence[float]
) -> list[float]:
    """Returns the model FLOPs utilization of each round: 2 operations per token and linear weight,
    relative to that round's peak. Attention and the output layer are not counted."""
    return [
        2 * num_linear_parameters * rate / limit
        for rate, limit in zip(tokens_per_s, peaks, strict=True)
    ]


def verdict(
    bar: Bar, *, ratio: float | None, utilization: float | None, seconds: float | None
) -> bool | None:
    """Returns whether every figure of the bar exists and reaches it; None without a bar."""
    asked = [
        (bar.min_ratio, ratio, 1),
        (bar.min_utilization, utilization, 1),
        (bar.max_seconds, seconds, -1),
    ]
    checks = [
        seen is not None and sign * seen >= sign * limit
        for limit, seen, sign in asked
        if limit is not None
    ]
    return all(checks) if checks else None
