"""Roundings of the executor that training repeats: inputs of linear layers, keys and values."""

from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.compress.activations import round_input
from paredown.compress.quantize.kv_cache import round_dynamic, round_static
from paredown.distill.quantized.straight_through import straight_through
from paredown.formats.weight import CoreWeight
from paredown.spec.kv import KVDType, KVScales
from paredown.spec.run_form import run_form
from paredown.spec.weight import ActivationDType

# A static scale's largest code, and half a step beyond it.
_INT8_REACH = 127.5


@dataclass(frozen=True, kw_only=True)
class InputRounding:
    """The rounding of a linear layer's input. `group_size` is that of its weight; `input_scale` is
    there for int8_static. Layers that are equal in this may read one rounded input."""

    activations: ActivationDType
    group_size: int | None = None
    input_scale: float | None = None

    @classmethod
    def of(cls, weight: CoreWeight) -> "InputRounding":
        """Returns how the native core reads the input of a stored weight."""
        form = run_form(weight.spec, weight.shape[1], scale_dtype=weight.scale_dtype)
        return cls(
            activations=form.activations,
            group_size=form.group_size,
            input_scale=getattr(weight, "input_scale", None),
        )

    def __call__(self, x: Tensor) -> Tensor:
        if self.activations == "fp32":
            return x
        limit = None if self.input_scale is None else _INT8_REACH * self.input_scale
        return straight_through(x, self._rounded, limit)

    def _rounded(self, x: Tensor) -> Tensor:
        return round_input(x, self.activations, self.input_scale, group_size=self.group_size)


@dataclass(frozen=True, kw_only=True)
class KVRounding:
    """The format in which keys, or values, [B, K, T, C] are kept. `scales` are those of the static
    formats, one for all heads or for each."""

    dtype: KVDType
    scales: tuple[float, ...] | None = None

    def __call__(self, x_BKTC: Tensor) -> Tensor:
        if self.dtype == "fp32":
            return x_BKTC
        if self.dtype == "bf16":
            return straight_through(x_BKTC, lambda x: x.bfloat16().float())
        if self.scales is None:
            return straight_through(x_BKTC, self._dynamic)
        scale_K11 = torch.tensor(self.scales)[:, None, None]
        reach = 448.0 if self.dtype == "fp8-static" else _INT8_REACH
        return straight_through(x_BKTC, self._static, reach * scale_K11)

    def _dynamic(self, x_BKTC: Tensor) -> Tensor:
        assert self.dtype in ("int8", "int4", "fp8"), self.dtype
        return round_dynamic(x_BKTC, self.dtype)

    def _static(self, x_BKTC: Tensor) -> Tensor:
        scale_K11 = torch.tensor(self.scales)[:, None, None]
        return round_static(x_BKTC, scale_K11, "fp8" if self.dtype == "fp8-static" else "int8")[0]


def kv_roundings(dtype: KVDType, scales: KVScales | None) -> dict[str, KVRounding]:
    """Returns the roundings of a layer's keys and values by point."""
    keys, values = (None, None) if scales is None else (scales.keys, scales.values)
    return {
        "k": KVRounding(dtype=dtype, scales=keys),
        "v": KVRounding(dtype=dtype, scales=values),
    }
