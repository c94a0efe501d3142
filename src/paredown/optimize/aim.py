"""Aim: chooses the mix that the bounds just allow, from the candidates measured so far."""

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from paredown.evaluate.quality.measurement import Measurement
from paredown.optimize.bounds import Bounds
from paredown.optimize.candidates import Candidates
from paredown.optimize.choose import EQUALLY_FAST
from paredown.optimize.ladder import Axis, Mix, best_within, cheapest_within

# Mixes aim at this share of the limit, since perplexity on a text has noise.
_AIM = 0.93
# KL per unit of lost perplexity, used if no candidate tells; on a model's own text the two agree.
_KL_PER_LOSS = 1.0
_TELLING_LOSS = 0.002
_QUALITY = ("--max-quality-loss", "--max-kl")
# A mix is worth making if it costs or reads at most this share of the best so far.
_WORTHWHILE = 0.97


@dataclass(frozen=True, kw_only=True)
class Mixes:
    """The Pareto-optimal mixes in loss and cost, and in loss and bytes."""

    by_cost: list[Mix]
    by_bytes: list[Mix]

    def along(self, axis: Axis) -> list[Mix]:
        return self.by_cost if axis == "cost" else self.by_bytes


@dataclass(frozen=True, kw_only=True)
class Aim:
    """`found` and `made`, which maps candidates to their mixes, grow as the search goes on.
    `table_bytes` of a candidate's file do not belong to linear layers."""

    bounds: Bounds
    found: Candidates
    made: Mapping[str, Mix]
    table_bytes: float

    def mix(self, mixes: Mixes, gain: float) -> Mix:
        """Returns the mix that is just allowed, for a method that loses `gain` times the sum of
        its parts' losses. It is the smallest of those that are about as fast as the fastest. Where
        size or speed is bounded, it is the one with the least loss within that."""
        if self.bounds.has_resources:
            by_speed = (self.bounds.min_decode, self.bounds.max_first_token_s) != (None, None)
            axis: Axis = "cost" if by_speed else "read_bytes"
            return best_within(mixes.along(axis), self._allowed(axis), axis)
        limit = _AIM * self._allowed_kl() / gain
        fastest = cheapest_within(mixes.by_cost, limit)
        smallest = cheapest_within(mixes.by_bytes, limit)
        return smallest if EQUALLY_FAST * smallest.cost <= fastest.cost else fastest

    def is_new(self, mix: Mix) -> bool:
        """Returns whether the mix is clearly smaller or faster than the mixes made so far within
        the bounds; always true where the search is for the best quality."""
        if self.bounds.has_resources:
            return True
        allowed = [
            self.made[one.name]
            for one in self.found.measurements
            if one.name in self.made and self._meets(one)
        ]
        return all(
            mix.cost <= _WORTHWHILE * one.cost or mix.read_bytes <= _WORTHWHILE * one.read_bytes
            for one in allowed
        )

    @property
    def _reference(self) -> Measurement:
        assert self.found.reference is not None
        return self.found.reference

    def _meets(self, one: Measurement) -> bool:
        return all(gap.excess <= 1 for gap in self.bounds.gaps(one, self._reference))

    def _allowed_kl(self) -> float:
        """Returns the KL divergence at the allowed loss, from the candidates whose losses are
        nearest to it, if there are any."""
        limits = [] if self.bounds.max_kl is None else [self.bounds.max_kl]
        allowed = self.bounds.max_quality_loss
        if allowed is not None:
            ratios = [
                (abs(loss - allowed), kl / loss)
                for loss, kl in self._losses()
                if loss > _TELLING_LOSS
            ]
            nearest = [ratio for _, ratio in sorted(ratios)[:2]]
            limits.append(allowed * (statistics.mean(nearest) if nearest else _KL_PER_LOSS))
        return min(limits, default=float("inf"))

    def _losses(self) -> Iterator[tuple[float, float]]:
        """Yields (lost perplexity, KL) of the candidates."""
        expected = self._reference.perplexity
        for one in self.found.measurements:
            if one.perplexity and expected and one.kl_divergence is not None:
                yield one.perplexity / expected - 1, one.kl_divergence

    def _allowed(self, axis: Axis) -> float:
        """Returns the limit, in bytes, on what the linear layers may read or cost, for the
        tightest bound on size, memory and speed. The candidate nearest to that bound is scaled by
        its excess."""
        allowed = []
        for one in self.found.measurements:
            gaps = [
                gap for gap in self.bounds.gaps(one, self._reference) if gap.bound not in _QUALITY
            ]
            worst = max((gap.excess for gap in gaps), default=1.0)
            made = self.made.get(one.name)
            own = max(one.file_bytes - self.table_bytes, 1) if made is None else made.along(axis)
            allowed.append((abs(worst - 1), own / max(worst, 1e-6)))
        return _AIM * min(allowed)[1]
