"""Simulates keys and values on small grids, at the decoder's taps "k" and "v".

Shapes: B sequences, K key-value heads, T tokens, C columns of a head; keys come after rotation, as
they are stored.

Dynamic: each token and head has its own scale, found when it is written, as in the native pages
(spec/kv.py, csrc/kernels/attention/kv_pages.h). With M the largest magnitude and e the element
that has it:

    int8   s = bf16(M / 127)     q = round(clamp(x (1 / s), -128, 127))
    int4   s = bf16(e / -8)      q = round(clamp(x (1 / s), -8, 7)): all 16 codes are used
    fp8    s = bf16(M / 448)     q = x (1 / s), at most 448, to the nearest e4m3 number

Static: all tokens share one scale for the layer or for each head. It is calibrated and stored with
the model as compressed-tensors does (`k_scale`, `v_scale`, kv_cache_scheme), symmetric: M / 448
for fp8, M / ((2^b - 1) / 2) for integers. Larger values are clamped.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor

from paredown.compress.activations import ActivationGrid
from paredown.errors import CheckpointError
from paredown.formats.e4m3 import MAX_FP8

KVGridDType = Literal["int8", "int4", "fp8"]
KV_GRID_DTYPES: tuple[KVGridDType, ...] = get_args(KVGridDType)
KV_POINTS = ("k", "v")
# The heads that share a static scale.
KVShare = Literal["layer", "head"]

_GRIDS: dict[KVGridDType, ActivationGrid] = {
    "int8": ActivationGrid(dtype="int8"),
    "int4": ActivationGrid(dtype="int4"),
    "fp8": ActivationGrid(dtype="fp8_e4m3"),
}
# Below this the inverse of a scale would overflow; such a head counts as zeros.
_SMALLEST = 1e-30
# An empty range still has a scale above zero.
_LEAST_SCALE = 2.0**-23


def round_dynamic(x_BKTC: Tensor, dtype: KVGridDType) -> Tensor:
    """Rounds each token's head on a grid of its own."""
    magnitudes, places = x_BKTC.abs().max(-1, keepdim=True)
    if dtype == "int4":
        scales = x_BKTC.gather(-1, places) / -8
    else:
        scales = magnitudes / (MAX_FP8 if dtype == "fp8" else 127)
    scales = scales.bfloat16().to(x_BKTC.dtype)
    scales = scales.masked_fill(magnitudes < _SMALLEST, 0.0)
    inverses = scales.reciprocal().masked_fill(scales == 0, 0.0)
    return _GRIDS[dtype].to_number(x_BKTC * inverses) * scales


def round_static(x_BKTC: Tensor, scale: Tensor, dtype: KVGridDType) -> tuple[Tensor, int]:
    """Rounds on the grid of one given `scale`, [1] or [K, 1, 1], and returns how many values it
    clamped."""
    scaled = x_BKTC / scale
    codes = _GRIDS[dtype].to_number(scaled)
    low, high = _GRIDS[dtype].code_range
    beyond = (scaled < low - 0.5) | (scaled > high + 0.5)
    if dtype == "fp8":
        beyond = scaled.abs() > MAX_FP8
    return codes * scale, int(beyond.sum())


@dataclass(frozen=True, kw_only=True)
class StaticKVScales:
    """The scales `k_scale` and `v_scale` of one layer, float32, [1] or [K, 1, 1] (one per head)."""

    k_scale: Tensor
    v_scale: Tensor


@dataclass
class KVRange:
    """Records the largest magnitudes of each head of one layer over the calibration tokens. As a
    tap it changes nothing."""

    largest: dict[str, Tensor] = field(default_factory=dict)

    def tap(self, point: str, x: Tensor) -> Tensor:
        """Records keys or values. Raises CheckpointError for values that are not finite."""
        if point in KV_POINTS:
            magnitudes_K11 = x.abs().amax((0, 2, 3))[:, None, None]
            if not bool(magnitudes_K11.isfinite().all()):
                raise CheckpointError(
                    f"the cache's {point} are not finite numbers",
                    seen="NaN or infinity",
                    remedy="The checkpoint is damaged or its training diverged; use another one.",
                )
            before = self.largest.get(point, magnitudes_K11)
            self.largest[point] = torch.maximum(before, magnitudes_K11)
        return x

    def scales(self, dtype: KVGridDType, share: KVShare = "layer") -> StaticKVScales:
        """Returns the scales for all values seen; none is clamped by more than half a step."""
        k_scale, v_scale = (self._scale(point, dtype, share) for point in KV_POINTS)
        return StaticKVScales(k_scale=k_scale, v_scale=v_scale)

    def _scale(self, point: str, dtype: KVGridDType, share: KVShare) -> Tensor:
        largest = self.largest[point]
        if share == "layer":
            largest = largest.amax().reshape(1)
        steps = MAX_FP8 if dtype == "fp8" else ((1 << _GRIDS[dtype].bits) - 1) / 2
        return (largest / steps).float().clamp(min=_LEAST_SCALE)


def dynamic_taps(dtype: KVGridDType, num_layers: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """Returns taps by point ("layers.0.k", ...), for evaluate/quality/simulated.py."""
    return {
        f"layers.{layer}.{point}": lambda x: round_dynamic(x, dtype)
        for layer in range(num_layers)
        for point in KV_POINTS
    }


@dataclass
class StaticTaps:
    """Taps by point for the static scales of each layer; they count `num_clamped` as they run."""

    dtype: KVGridDType
    scales: Iterable[StaticKVScales]
    num_clamped: int = 0

    def by_point(self) -> Mapping[str, Callable[[Tensor], Tensor]]:
        return {
            f"layers.{layer}.{point}": self._tap(scale)
            for layer, both in enumerate(self.scales)
            for point, scale in (("k", both.k_scale), ("v", both.v_scale))
        }

    def _tap(self, scale: Tensor) -> Callable[[Tensor], Tensor]:
        def run(x: Tensor) -> Tensor:
            values, num_clamped = round_static(x, scale, self.dtype)
            self.num_clamped += num_clamped
            return values

        return run
