"""The rule that chooses which candidate is written.

If only quality is bounded, the rule considers the candidates within the bounds that are at least
95 % as fast as the fastest of them, at decoding or at reading texts; runs differ by about as much.
Among these it prefers the smallest file, then the one that loses less, then the faster one. The
choice is always on the Pareto front.

If size, speed or memory is bounded, it takes the candidate that loses least of those that meet
every bound, then the smallest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from paredown.errors import ConfigError
from paredown.evaluate.quality.measurement import Measurement
from paredown.optimize.bounds import Bounds, Gap
from paredown.optimize.front import point_of

EQUALLY_FAST = 0.95


@dataclass(frozen=True, kw_only=True)
class Choice:
    """`chosen` meets all bounds. If none does, `nearest` misses them by the smallest factor, and
    `missed` are the bounds that it misses."""

    chosen: Measurement | None
    nearest: Measurement | None = None
    missed: tuple[Gap, ...] = ()


def quality_loss(perplexity: float, reference_perplexity: float) -> float:
    """Returns the relative increase of perplexity: 0.01 is 1 % more than the reference."""
    return perplexity / reference_perplexity - 1


def lost_share(one: Measurement, reference: Measurement) -> float:
    """Returns the relative increase of perplexity, or what an encoder's mean cosine lacks of 1."""
    if one.cosine_mean is not None:
        return 1 - one.cosine_mean
    assert one.perplexity is not None
    assert reference.perplexity is not None
    return quality_loss(one.perplexity, reference.perplexity)


def choose(candidates: Sequence[Measurement], reference: Measurement, bounds: Bounds) -> Choice:
    """Chooses a candidate by the module's rule."""
    gaps = [bounds.gaps(one, reference) for one in candidates]
    good = [
        one
        for one, own in zip(candidates, gaps, strict=True)
        if all(gap.excess <= 1 for gap in own)
    ]
    if good:
        return Choice(chosen=_best(good) if bounds.has_resources else _smallest_of_fastest(good))
    if not candidates:
        return Choice(chosen=None)
    worst = [max(gap.excess for gap in own) for own in gaps]
    at = worst.index(min(worst))
    missed = tuple(gap for gap in gaps[at] if gap.excess > 1)
    return Choice(chosen=None, nearest=candidates[at], missed=missed)


def parse_quality_loss(text: str) -> float:
    """Parses '1%' or '0.01' as 0.01. Raises ConfigError."""
    number = text.strip().removesuffix("%")
    try:
        value = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ConfigError(
            "--max-quality-loss is not a share", seen=text, remedy="Give one such as 1% or 0.01."
        )
    return value


def _best(good: Sequence[Measurement]) -> Measurement:
    return min(good, key=lambda one: (point_of(one).loss, point_of(one).file_bytes))


def _smallest_of_fastest(good: Sequence[Measurement]) -> Measurement:
    fastest = max(point_of(one).rate for one in good)
    fast = [one for one in good if point_of(one).rate >= EQUALLY_FAST * fastest]
    return min(fast, key=_preference)


def _preference(one: Measurement) -> tuple[float, float, float]:
    point = point_of(one)
    return point.file_bytes, point.loss, -point.rate
