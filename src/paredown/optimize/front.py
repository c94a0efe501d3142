"""The Pareto front of the candidates: the trade-offs between quality, size and speed.

Each candidate is a point with three figures: lost quality and file size, where less is better, and
speed, where more is better. A model that predicts tokens loses perplexity and decodes tokens; an
encoder loses cosine and reads texts. A point dominates another if it is no worse in any
figure and better in at least one. The front consists of the points that no other dominates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paredown.evaluate.quality.measurement import Measurement


@dataclass(frozen=True, kw_only=True)
class Point:
    """`loss` is a perplexity, or what a mean cosine lacks of 1; `rate` tokens or texts per
    second."""

    loss: float
    file_bytes: float
    rate: float

    def dominates(self, other: "Point") -> bool:
        own, others = self._costs(), other._costs()
        return own != others and all(a <= b for a, b in zip(own, others, strict=True))

    def _costs(self) -> tuple[float, float, float]:
        """Returns the figures with lower as better; a value that is not a number counts as the
        worst."""
        loss = math.inf if math.isnan(self.loss) else self.loss
        return loss, self.file_bytes, -self.rate


def point_of(measurement: Measurement) -> Point:
    """Returns the point of a candidate whose quality and speed were measured."""
    loss, rate = measurement.perplexity, measurement.decode_tokens_per_s
    if measurement.cosine_mean is not None:
        loss, rate = 1 - measurement.cosine_mean, measurement.texts_per_s
    assert loss is not None
    assert rate is not None
    return Point(loss=loss, file_bytes=measurement.file_bytes, rate=rate)


def on_front(points: Sequence[Point]) -> list[bool]:
    """Returns for each point whether no other dominates it; equal points are on the front
    together."""
    return [not any(other.dominates(point) for other in points) for point in points]


def mark_front(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Returns the candidates with `on_front` set."""
    marks = on_front([point_of(one) for one in measurements])
    return [replace(one, on_front=mark) for one, mark in zip(measurements, marks, strict=True)]
