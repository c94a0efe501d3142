"""The attention's two products in 8 bits (SmoothQuant, arXiv 2211.10438, figure 6): q k^T and
probabilities v, with one static scale for each of the four.

A tap puts the rounded values where the decoder multiplies: codes of 8 bits times a scale. Their
product is that of the integers times the two scales, up to float32's rounding (the tests compare it
with exact integers), so the reference needs no other arithmetic. The scale of the softmax's input,
1 / sqrt(head size), is folded with theirs where integers are multiplied.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.compress.quantize.method import Block
from paredown.models.decoder import Layer

POINTS = ("q", "k", "probabilities", "v")
_LARGEST_CODE = 127
_SMALLEST = 1e-5


@dataclass(frozen=True, kw_only=True)
class Int8Attention:
    """One layer's four scales, by point. Probabilities need no calibration: they end at 1."""

    scales: Mapping[str, float]

    @classmethod
    @torch.no_grad()
    def calibrate(cls, block: Block) -> "Int8Attention":
        """From the largest magnitudes of queries, keys and values over all calibration inputs."""
        largest = dict.fromkeys(POINTS, 0.0)
        largest["probabilities"] = 1.0

        def tap(point: str, x: Tensor) -> Tensor:
            if point in ("q", "k", "v"):
                largest[point] = max(largest[point], float(x.abs().max()))
            return x

        block.run(tap, stop_after="v")
        return cls(
            scales={
                point: max(value, _SMALLEST) / _LARGEST_CODE for point, value in largest.items()
            }
        )

    def codes(self, point: str, x: Tensor) -> Tensor:
        """Whole numbers from -127 to 127."""
        return (x / self.scales[point]).round().clamp(-_LARGEST_CODE, _LARGEST_CODE)

    def __call__(self, point: str, x: Tensor) -> Tensor:
        """The tap."""
        return self.codes(point, x) * self.scales[point] if point in self.scales else x

    @contextmanager
    def on(self, layer: Layer) -> Iterator[None]:
        """The layer with both products in 8 bits, until the block ends; what its own tap makes of
        the values comes first."""
        before = layer.tap

        def both(point: str, x: Tensor) -> Tensor:
            return self(point, before(point, x))

        layer.tap = both
        try:
            yield
        finally:
            layer.tap = before
