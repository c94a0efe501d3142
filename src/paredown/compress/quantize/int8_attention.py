"""The attention's two products in 8 bits (SmoothQuant, arXiv 2211.10438, figure 6): q k^T and
probabilities v, with one static scale for each of the four.

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

from paredown.models.decoder import Decoder, Layer, Tap, untouched

_CALIBRATED = ("q", "k", "v")
_LARGEST_CODE = 127
_SMALLEST = 1e-5


@dataclass(frozen=True, kw_only=True)
class Int8Attention:
    """One layer's scales, by point: of q, k, v and probabilities. An instance is a tap."""

    scales: Mapping[str, float]

    def codes(self, point: str, x: Tensor) -> Tensor:
        """Whole numbers from -127 to 127."""
        return (x / self.scales[point]).round().clamp(-_LARGEST_CODE, _LARGEST_CODE)

    def __call__(self, point: str, x: Tensor) -> Tensor:
        return self.codes(point, x) * self.scales[point] if point in self.scales else x


@torch.no_grad()
def use_int8_attention(decoder: Decoder, windows_NT: npt.NDArray[np.int64]) -> None:
    """Gives each layer of `decoder` its tap: scales reach the largest queries, keys and values that
    the calibration windows make. Probabilities end at 1 and need none."""
    layers = [layer for layer in decoder.layers if isinstance(layer, Layer)]
    found = [dict.fromkeys(_CALIBRATED, _SMALLEST) for _ in layers]
    for layer, largest in zip(layers, found, strict=True):
        assert layer.tap is untouched
        layer.tap = _watcher(largest)
    for window_T in windows_NT:
        decoder(torch.from_numpy(window_T)[None])
    for layer, largest in zip(layers, found, strict=True):
        largest["probabilities"] = 1.0
        scales = {point: value / _LARGEST_CODE for point, value in largest.items()}
        layer.tap = Int8Attention(scales=scales)


def _watcher(largest: dict[str, float]) -> Tap:
    def tap(point: str, x: Tensor) -> Tensor:
        if point in largest:
            largest[point] = max(largest[point], float(x.abs().max()))
        return x

    return tap
