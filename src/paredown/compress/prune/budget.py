"""Budgets: shares for the layers under a total share or a total loss.

Each layer has a curve of its loss over the share that is removed; the layers' losses add up. The
shares with the least sum are where all curves are equally steep, so the least steep pieces of all
curves are taken first. A curve that is not convex counts as its lower convex hull.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paredown.compress.prune.pattern import Share
from paredown.errors import ConfigError

# Layers keep at least one weight in twenty, unless the caller asks otherwise.
MOST_SHARE = 0.95
# Halvings of an interval, down to a share that no weight is counted in.
_BISECTIONS = 40


@dataclass(frozen=True, kw_only=True)
class LossCurve:
    """The loss of a layer of `num_weights` over the share of them that is removed. `shares` rise
    from 0, where the loss is 0; between two points the loss is taken as linear."""

    num_weights: int
    shares: tuple[float, ...]
    losses: tuple[float, ...]

    def __post_init__(self) -> None:
        assert len(self.shares) == len(self.losses) > 0
        assert self.shares[0] == self.losses[0] == 0
        assert all(low < high for low, high in itertools.pairwise(self.shares))
        assert all(math.isfinite(loss) for loss in self.losses)

    def loss_at(self, share: float) -> float:
        """Returns the loss at any share; beyond the last point it is that of the last."""
        return float(np.interp(share, self.shares, self.losses))

    def points(self, most_share: float) -> list[tuple[int, float]]:
        """Returns the counts of removed weights and their losses up to `most_share`, on the lower
        convex hull."""
        hull: list[tuple[int, float]] = []
        for point in self._counts(most_share):
            while len(hull) > 1 and _slope(hull[-2], hull[-1]) >= _slope(hull[-1], point):
                hull.pop()
            hull.append(point)
        return hull

    def _counts(self, most_share: float) -> list[tuple[int, float]]:
        most = math.floor(most_share * self.num_weights)
        found = [(0, 0.0)]
        for share, loss in zip(self.shares[1:], self.losses[1:], strict=True):
            count = round(share * self.num_weights)
            if count > most:
                grows = _slope(found[-1], (count, loss))
                if most > found[-1][0]:
                    found.append((most, found[-1][1] + grows * (most - found[-1][0])))
                break
            if count > found[-1][0]:
                found.append((count, loss))
        return found


def shares_for_total(
    curves: Mapping[str, LossCurve], share: float, most_share: float = MOST_SHARE
) -> dict[str, Share]:
    """Returns the shares by layer that together remove exactly `share` of all weights, and no more
    than `most_share` of any layer. Raises ConfigError if that is not possible."""
    wanted = Share(share=share).num_removed(sum(curve.num_weights for curve in curves.values()))
    counts = dict.fromkeys(curves, 0)
    for piece in _pieces(curves, most_share):
        taken = min(piece.count, wanted)
        counts[piece.layer] += taken
        wanted -= taken
    if wanted:
        raise ConfigError(
            "the layers cannot give as much as the total share asks for",
            seen=f"{share:g} in all, at most {most_share:g} of a layer and what was measured",
            remedy="Ask for a smaller share.",
        )
    return _shares(curves, counts)


def common_share(curves: Sequence[LossCurve], max_loss: float, most_share: float) -> Share:
    """Returns the largest share, at most `most_share`, that removed from every layer keeps the sum
    of the losses at or below `max_loss`."""

    def loss(share: float) -> float:
        return sum(curve.loss_at(share) for curve in curves)

    if loss(most_share) <= max_loss:
        return Share(share=most_share)
    low, high = 0.0, most_share
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if loss(middle) <= max_loss else (low, middle)
    return Share(share=low)


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """A straight piece of a layer's curve: `count` weights that cost `slope` each."""

    slope: float
    layer: str
    count: int


def _pieces(curves: Mapping[str, LossCurve], most_share: float) -> list[_Piece]:
    """Returns the pieces of all curves, the cheapest first; those of one layer keep their order."""
    found = []
    for layer, curve in curves.items():
        points = curve.points(most_share)
        for low, high in itertools.pairwise(points):
            found.append(_Piece(slope=_slope(low, high), layer=layer, count=high[0] - low[0]))
    return sorted(found, key=lambda piece: piece.slope)


def _slope(low: tuple[int, float], high: tuple[int, float]) -> float:
    return (high[1] - low[1]) / (high[0] - low[0])


def _shares(curves: Mapping[str, LossCurve], counts: Mapping[str, int]) -> dict[str, Share]:
    return {
        layer: Share(share=counts[layer] / curve.num_weights) for layer, curve in curves.items()
    }
