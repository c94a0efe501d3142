"""The attention's two products in 8 bits (SmoothQuant, arXiv 2211.10438, figure 6): q k^T and
probabilities v, with a static scale each for q, k and v.

The paper's scale of the probabilities is static too: 1 / 127, which rounds all below 1 / 254 to
zero, and with them most of what a long context says. Unless asked for that, each row gets its own
scale, its largest probability / 127: the same as rounding the exponentials before they are divided
by their sum, and a factor of one output row.

A tap puts the rounded values where the decoder multiplies: codes of 8 bits times a scale. Their
product is that of the integers times the two scales, up to float32's rounding (the tests compare it
with exact integers), so the reference needs no other arithmetic. The scale of the softmax's input,
1 / sqrt(head size), is folded with theirs where integers are multiplied.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.layer import Layer
from paredown.models.decoder.points import Tap, untouched

_CALIBRATED = ("q", "k", "v")
_PROBABILITIES = "probabilities"
_LARGEST_CODE = 127
_SMALLEST = 1e-5


@dataclass(frozen=True, kw_only=True)
class Int8Attention:
    """One layer's static scales, by point; without one for the probabilities, a row has its own.
    An instance is a tap."""

    scales: Mapping[str, float]

    def codes(self, point: str, x: Tensor) -> tuple[Tensor, Tensor | float]:
        """Whole numbers from -127 to 127, and what one stands for."""
        scale: Tensor | float
        if point in self.scales:
            scale = self.scales[point]
        else:
            scale = x.amax(-1, keepdim=True) / _LARGEST_CODE
        return (x / scale).round().clamp(-_LARGEST_CODE, _LARGEST_CODE), scale

    def __call__(self, point: str, x: Tensor) -> Tensor:
        if point not in self.scales and point != _PROBABILITIES:
            return x
        codes, scale = self.codes(point, x)
        return codes * scale


@torch.no_grad()
def use_int8_attention(
    decoder: Decoder, *, windows_NT: npt.NDArray[np.int64], static_probabilities: bool = False
) -> None:
    """Gives each layer of `decoder` its tap: scales reach the largest queries, keys and values that
    the calibration windows make."""
    layers = [layer for layer in decoder.layers if isinstance(layer, Layer)]
    found = [dict.fromkeys(_CALIBRATED, _SMALLEST) for _ in layers]
    for layer, largest in zip(layers, found, strict=True):
        assert layer.tap is untouched
        layer.tap = _watcher(largest)
    for window_T in windows_NT:
        decoder(torch.from_numpy(window_T)[None])
    for layer, largest in zip(layers, found, strict=True):
        if static_probabilities:
            largest[_PROBABILITIES] = 1.0
        scales = {point: value / _LARGEST_CODE for point, value in largest.items()}
        layer.tap = Int8Attention(scales=scales)


def _watcher(largest: dict[str, float]) -> Tap:
    def tap(point: str, x: Tensor) -> Tensor:
        if point in largest:
            largest[point] = max(largest[point], float(x.abs().max()))
        return x

    return tap
