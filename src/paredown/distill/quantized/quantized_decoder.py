"""The decoder of a quantized checkpoint, in a form that can be trained.

It computes what the executor computes that will serve the checkpoint: with the values of the codes,
on inputs, keys and values that are rounded as the files say. Linear layers in codes are replaced by
`QuantizedLinear` or `ScaledCodes`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from paredown.distill.quantized.input_rounding import InputRounding, kv_roundings
from paredown.distill.quantized.quantized_linear import QuantizedLinear, ScaledCodes
from paredown.distill.quantized.trained_grids import TrainedGrids
from paredown.errors import UnsupportedError
from paredown.formats.grid_weight import GridWeight
from paredown.formats.stored.table import stored_tensors
from paredown.formats.weight import CoreWeight
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.layer import Layer
from paredown.models.decoder.points import input_point
from paredown.models.kv_scales import used_kv_scales
from paredown.models.roles import linear_roles
from paredown.spec.experts import Experts
from paredown.spec.kv import KVSpec
from paredown.spec.run_form import run_form

_METHOD = "compressed-tensors"
# Routers read this point too, and they read it as it is.
_ROUTED = "mlp_input"


def quantized_decoder(
    start: Checkpoint, grids: TrainedGrids, floats: Checkpoint | None = None
) -> Decoder:
    """Returns the decoder of `start`. `floats` is the checkpoint that it was rounded from, where
    its layers have the same shapes and meaning. Raises what `check_trainable` raises."""
    check_trainable(start)
    decoder = Decoder.from_checkpoint(start)
    for layer in decoder.layers:
        assert isinstance(layer, Layer)
        quantize_layer(layer, start, grids, floats)
        start.release()
    decoder.embedding.weight.data = _held(start.embedding())
    if not start.spec.generates:
        return decoder
    output = start.output()
    decoder.final_norm.register_forward_hook(_output_hook(InputRounding.of(output)))
    if start.spec.has_own_output:
        decoder.output.weight.data = _held(output)
    return decoder


def check_trainable(start: Checkpoint) -> None:
    """Raises UnsupportedError unless linear layers are stored as codes on grids in
    compressed-tensors' form, in which they are written back."""
    section = start.config.get("quantization_config")
    method = section.get("quant_method") if isinstance(section, dict) else None
    if not start.forms or method != _METHOD:
        raise UnsupportedError(
            f"training needs linear layers in the codes of {_METHOD}",
            seen=f"{start.path}: {method or 'no codes'}",
            remedy="Quantize the model first: paredown compress --recipe gptq-int4-g128, for one.",
        )


def quantize_layer(
    layer: Layer, start: Checkpoint, grids: TrainedGrids, floats: Checkpoint | None = None
) -> None:
    """Replaces the layer's modules that `start` has in codes, and rounds what it reads."""
    readers: dict[str, dict[str, InputRounding]] = {}
    for role in linear_roles(start.spec, layer.index):
        weight = start.linear(role, layer.index)
        readers.setdefault(input_point(role), {})[role] = InputRounding.of(weight)
        module = start.linear_name(role, layer.index)
        if module not in start.forms:
            continue
        own = _grid_weight(weight, start, module)
        floats_OI = None
        if floats is not None and module not in start.pruned:
            floats_OI = torch.tensor(floats.linear(role, layer.index).dequantize())
        plain = layer.get_submodule(role)
        assert isinstance(plain, nn.Linear)
        _replace(layer, role, _trained(own, plain.bias, grids, floats_OI))
    scales = used_kv_scales(start, KVSpec(num_pages=1, dtype=start.kv_dtype))
    roundings: dict[str, Callable[[Tensor], Tensor]] = dict(
        kv_roundings(start.kv_dtype, scales.get(layer.index))
    )
    for point, by_role in readers.items():
        is_routed = point == _ROUTED and isinstance(layer.spec.mlp, Experts)
        if len(set(by_role.values())) == 1 and not is_routed:
            roundings[point] = next(iter(by_role.values()))
            continue
        for role, rounding in by_role.items():
            layer.get_submodule(role).register_forward_pre_hook(_input_hook(rounding))
    layer.tap = _Taps(by_point=roundings)


def quantized_modules(decoder: Decoder) -> dict[str, QuantizedLinear | ScaledCodes]:
    """Returns the trained modules by name: "layers.0.q"."""
    kinds = (QuantizedLinear, ScaledCodes)
    return {name: one for name, one in decoder.named_modules() if isinstance(one, kinds)}


@dataclass(frozen=True, kw_only=True)
class _Taps:
    by_point: Mapping[str, Callable[[Tensor], Tensor]]

    def __call__(self, point: str, x: Tensor) -> Tensor:
        rounding = self.by_point.get(point)
        return x if rounding is None else rounding(x)


def _trained(
    weight: GridWeight, bias: Tensor | None, grids: TrainedGrids, floats_OI: Tensor | None
) -> nn.Module:
    if not grids.trains_codes:
        return ScaledCodes(weight, bias)
    return QuantizedLinear(weight, bias, rule=grids.rule, floats_OI=floats_OI)


def _grid_weight(weight: CoreWeight, start: Checkpoint, module: str) -> GridWeight:
    """Raises UnsupportedError for numbers that are not written back as they were read."""
    suffixes = set(start.forms[module].suffixes)
    if (
        isinstance(weight, GridWeight)
        and weight.spec.is_grid
        and set(stored_tensors(weight)) == suffixes
    ):
        return weight
    raise UnsupportedError(
        f"the codes of {module} are stored in a form that training does not write",
        seen=", ".join(sorted(suffixes)),
        remedy="Quantize the original again: paredown compress --recipe gptq-int4-g128, for one.",
    )


def _held(weight: CoreWeight) -> Tensor:
    """Returns the values that the native core computes with."""
    form = run_form(weight.spec, weight.shape[1], scale_dtype=weight.scale_dtype)
    values = weight.dequantize() if form.is_dequantized else weight.at_work()
    return torch.tensor(values)


def _replace(layer: Layer, role: str, module: nn.Module) -> None:
    owner, _, own = role.rpartition(".")
    setattr(layer.get_submodule(owner), own, module)


def _input_hook(
    rounding: InputRounding,
) -> Callable[[nn.Module, tuple[Tensor, ...]], tuple[Tensor, ...]]:
    return lambda module, inputs: (rounding(inputs[0]),)


def _output_hook(
    rounding: InputRounding,
) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
    return lambda module, inputs, normed: rounding(normed)
