"""Rounds the values at points of a model: which points there are, and on what grid each is rounded.

A point of the layers is a part as a whole, in all layers or in chosen ones.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.compress.activations import ActivationGrid, StaticScale, round_activations
from paredown.compress.calibrate.activation_range import (
    ActivationEstimator,
    ActivationRange,
)
from paredown.errors import ConfigError
from paredown.evaluate.quality.simulated import PointTap, Variant
from paredown.models.decoder.points import LAYER_POINTS, MODEL_POINTS
from paredown.spec.model import ModelSpec

# Values of a batch that percentile and mse look at, at each point.
_SAMPLED_VALUES = 1 << 14

# The points in words.
POINT_NAMES = {
    "embedding": "embedding sum",
    "attention_input": "attention input",
    "q": "queries",
    "k": "keys",
    "v": "values",
    "scores": "softmax input",
    "probabilities": "softmax output",
    "o_input": "heads' output",
    "attention_output": "attention output",
    "attention_sum": "sum after attention",
    "mlp_input": "MLP input",
    "down_input": "MLP hidden",
    "mlp_output": "MLP output",
    "mlp_sum": "sum after MLP",
    "output_input": "output layer's input",
    "logits": "logits",
}
# Runs a model on the texts of a batch, with taps at the places of its points.
RunBatch = Callable[[Mapping[str, PointTap]], None]


@dataclass(frozen=True, kw_only=True)
class PointRounding:
    """`static` has the scale of each place ("layers.0.scores"), which `estimator` found; None finds
    scales as values come. Parts are the points of `layers` alone, if these are given."""

    grid: ActivationGrid
    static: Mapping[str, StaticScale] | None = None
    estimator: ActivationEstimator | None = None
    layers: tuple[int, ...] | None = None

    @property
    def name(self) -> str:
        """The grid, how its scales are found, and the layers, in words."""
        ranges = "" if self.estimator is None else f", static ranges by {self.estimator}"
        layers = "" if self.layers is None else f", layers {', '.join(map(str, self.layers))}"
        return f"{self.grid.name}{ranges}{layers}"

    def taps(self, places: Sequence[str]) -> dict[str, PointTap]:
        """Returns the taps that round at these places."""
        return {place: self._tap(place) for place in places}

    def _tap(self, place: str) -> PointTap:
        scale = None if self.static is None else self.static[place]

        def tap(x: Tensor) -> Tensor:
            return round_activations(x, self.grid, scale).values

        return tap

    def parts(self, spec: ModelSpec) -> dict[str, list[str]]:
        """Returns the places of each part, by its point."""
        chosen = range(spec.num_layers) if self.layers is None else self.layers
        found = {point: places_of(point, chosen) for point in points(spec)}
        if self.layers is not None:
            found = {point: found[point] for point in LAYER_POINTS}
        return found

    def variants(self, spec: ModelSpec) -> list[Variant]:
        """Returns a variant with all points rounded, in all layers, then for each part one with it
        alone and one with everything but it."""
        taps = self.taps(all_places(spec))
        variants = [Variant(taps=taps)]
        for own in self.parts(spec).values():
            others = {place: tap for place, tap in taps.items() if place not in own}
            variants += [Variant(taps={place: taps[place] for place in own}), Variant(taps=others)]
        return variants


def points(spec: ModelSpec) -> tuple[str, ...]:
    """Returns the points of a model in the order in which a token passes them."""
    after = [point for point in MODEL_POINTS[1:] if spec.generates or point != "logits"]
    return (MODEL_POINTS[0], *LAYER_POINTS, *after)


def all_places(spec: ModelSpec) -> list[str]:
    """Returns the places of all points in all layers."""
    return [place for point in points(spec) for place in places_of(point, range(spec.num_layers))]


def places_of(point: str, layers: Sequence[int]) -> list[str]:
    """Returns the places of a point: the model's own, or one for each of the layers."""
    return [point] if point in MODEL_POINTS else [f"layers.{layer}.{point}" for layer in layers]


def parse_layers(text: str, num_layers: int) -> tuple[int, ...]:
    """Parses '4,5' into numbers of layers. Raises ConfigError."""
    named = list(dict.fromkeys(part.strip() for part in text.split(",")))
    if not all(part.isdecimal() and int(part) < num_layers for part in named):
        raise ConfigError(
            "there are no such layers",
            seen=text,
            remedy=f"Give numbers from 0 to {num_layers - 1}, with commas between.",
        )
    return tuple(sorted(map(int, named)))


def static_rounding(
    spec: ModelSpec,
    grid: ActivationGrid,
    estimator: ActivationEstimator,
    batches: Iterable[RunBatch],
    layers: tuple[int, ...] | None = None,
) -> PointRounding:
    """Finds one scale for each place from the values of all batches. Raises ConfigError for a grid
    whose scales are found as values come, and CheckpointError for values that are not finite."""
    check_static(grid)
    ranges = {place: ActivationRange(_SAMPLED_VALUES) for place in all_places(spec)}
    for run in batches:
        passing: dict[str, list[Tensor]] = {place: [] for place in ranges}
        run({place: _keeper(values) for place, values in passing.items()})
        for place, values in passing.items():
            assert values, f"nothing passed {place}"
            ranges[place].observe(torch.cat(values))
    return PointRounding(
        grid=grid,
        static={place: one.static_scale(grid, estimator) for place, one in ranges.items()},
        estimator=estimator,
        layers=layers,
    )


def check_static(grid: ActivationGrid) -> None:
    """Raises ConfigError for a grid that cannot have one scale for everything."""
    if grid.granularity != "tensor" or not grid.has_scales:
        raise ConfigError(
            "ranges that are found beforehand belong to a whole tensor",
            seen=grid.name,
            remedy="Give a grid of one scale a tensor (--grid int8-tensor, int8-tensor-asym), or "
            "leave --ranges out.",
        )


def _keeper(values: list[Tensor]) -> PointTap:
    def look(x: Tensor) -> Tensor:
        values.append(x.flatten())
        return x

    return look
