"""The Pareto front of the candidates: the trade-offs between quality, size and speed.

Each candidate is a point with three figures: perplexity and file size, where less is better, and
decode tokens per second, where more is better. A point dominates another if it is no worse in any
figure and better in at least one. The front consists of the points that no other dominates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paredown.evaluate.quality.measurement import Measurement


@dataclass(frozen=True, kw_only=True)
class Point:
    perplexity: float
    file_bytes: float
    decode_tokens_per_s: float

    def dominates(self, other: "Point") -> bool:
        own, others = self._costs(), other._costs()
        return own != others and all(a <= b for a, b in zip(own, others, strict=True))

    def _costs(self) -> tuple[float, float, float]:
        """Returns the figures with lower as better; a value that is not a number counts as the
        worst."""
        perplexity = math.inf if math.isnan(self.perplexity) else self.perplexity
        return perplexity, self.file_bytes, -self.decode_tokens_per_s


def point_of(measurement: Measurement) -> Point:
    """Returns the point of a candidate whose quality and speed were measured."""
    assert measurement.perplexity is not None
    assert measurement.decode_tokens_per_s is not None
    return Point(
        perplexity=measurement.perplexity,
        file_bytes=measurement.file_bytes,
        decode_tokens_per_s=measurement.decode_tokens_per_s,
    )


def on_front(points: Sequence[Point]) -> list[bool]:
    """Returns for each point whether no other dominates it; equal points are on the front
    together."""
    return [not any(other.dominates(point) for other in points) for point in points]


def mark_front(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Returns the candidates with `on_front` set."""
    marks = on_front([point_of(one) for one in measurements])
    return [replace(one, on_front=mark) for one, mark in zip(measurements, marks, strict=True)]
