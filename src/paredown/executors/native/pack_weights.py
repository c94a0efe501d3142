"""Packs a checkpoint's weights into the native core, one layer at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from paredown.errors import ConfigError
from paredown.executors.native.native_form import to_native
from paredown.executors.native.native_heads import NativeHeads
from paredown.executors.native.tied_embedding import embedding_is_output
from paredown.formats.grid_weight import GridWeight, float_weight
from paredown.formats.integer_steps import integer_steps
from paredown.formats.tensor import STORED_DTYPES
from paredown.formats.weight import CoreWeight
from paredown.kernels.linear_source import LinearSource, named_arrays
from paredown.kernels.native_model import NativeModel
from paredown.models.checkpoint import Checkpoint
from paredown.spec.norm import Norm
from paredown.spec.roles import row_groups
from paredown.spec.run_form import RunForm, run_form
from paredown.spec.weight import ActivationDType, WeightSpec

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class _Held:
    """A weight in the form that the core holds, and how it runs."""

    weight: CoreWeight
    form: RunForm

    @property
    def key(self) -> tuple[object, ...]:
        """The key by which weights of one input are merged into one."""
        weight = self.weight
        return weight.spec, self.form.activations, weight.scale_dtype, weight.input_scale


def pack_weights(
    checkpoint: Checkpoint, model: NativeModel, activations: ActivationDType | None
) -> None:
    """Packs all weights into `model`. `activations` None reads each linear layer's input as its
    format says. Raises ConfigError for activations that a weight cannot be multiplied with."""
    _load_tables(checkpoint, model, activations)
    for layer in range(checkpoint.spec.num_layers):
        _load_layer(checkpoint, model, layer, activations)
    model.check_weights()


def _load_tables(
    checkpoint: Checkpoint, model: NativeModel, activations: ActivationDType | None
) -> None:
    output = _held(checkpoint.output(), activations)
    _add_linears(model, "output", 0, [output], [_output_bias(checkpoint)])
    if embedding_is_output(checkpoint):
        model.tie_embedding()
    else:
        _load_embedding(_held(checkpoint.embedding(), None), model)
    positions = checkpoint.position_embedding()
    if positions is not None:
        learned = checkpoint.spec.embedding.positions
        assert learned is not None
        model.set_positions(STORED_DTYPES[positions.dtype], positions.array, learned.offset)
    _load_norm(checkpoint, model, checkpoint.spec.last_norm, "final_norm", None)


def _load_embedding(embedding: _Held, model: NativeModel) -> None:
    """Loads floats as a table, and codes as a linear layer where its rows can be read."""
    weight = embedding.weight
    if weight.spec.is_quantized and embedding.form.has_rows:
        _add_linears(model, "embedding", 0, [embedding], [None])
        return
    if weight.spec.is_quantized:
        weight = float_weight(weight.dequantize(), weight.scale_dtype)[0]
    model.set_embedding(weight.spec.dtype, weight.arrays()["values"])


def _output_bias(checkpoint: Checkpoint) -> Vector | None:
    return checkpoint.vector("output.bias", None)


def _load_layer(
    checkpoint: Checkpoint, model: NativeModel, layer: int, activations: ActivationDType | None
) -> None:
    spec = checkpoint.spec
    heads = NativeHeads.of(spec.layers[layer], model.spec.layers[layer])
    for role, norm in spec.layers[layer].norms.by_role().items():
        _load_norm(checkpoint, model, norm, role, layer, heads)
    for role in spec.router_shapes(layer):
        # The router stays in float32 in any stored format: it decides where a token goes.
        router = GridWeight(
            spec=WeightSpec(dtype="fp32"), values_OI=checkpoint.router(role, layer).to_float32()
        )
        _add_linears(model, role, layer, [_held(router, None)], [None])
    for group, roles in row_groups(spec.linear_shapes(layer)).items():
        weights = [_held(heads.weight(checkpoint, role, layer), activations) for role in roles]
        biases = [heads.bias(checkpoint, role, layer) for role in roles]
        _add_linears(model, group, layer, weights, biases)


def _load_norm(
    checkpoint: Checkpoint,
    model: NativeModel,
    norm: Norm,
    role: str,
    layer: int | None,
    heads: NativeHeads | None = None,
) -> None:
    """Loads a norm. The core multiplies with the sum of the stored weight and the norm's offset."""
    weight = checkpoint.vector(f"{role}.weight", layer)
    assert weight is not None, f"{role} has no weight"
    if norm.offset:
        weight = weight + np.float32(norm.offset)
    if heads is not None and role in ("q_norm", "k_norm"):
        weight = heads.norm(weight)
    model.set_norm(role, layer or 0, weight, checkpoint.vector(f"{role}.bias", layer))


def _add_linears(
    model: NativeModel,
    group: str,
    layer: int,
    weights: Sequence[_Held],
    biases: Sequence[Vector | None],
) -> None:
    """Merges weights of equal format into one; others stay side by side."""
    if len({held.key for held in weights}) == 1:
        first, *others = [held.weight for held in weights]
        biases = [_stack_biases([first, *others], biases)]
        weights = [replace(weights[0], weight=first.stacked(others))]
    for held, bias in zip(weights, biases, strict=True):
        model.add_linear(group, layer, _source(held, bias))


def _held(weight: CoreWeight, activations: ActivationDType | None) -> _Held:
    """Converts a weight for the core. Raises ConfigError for activations that the weight cannot be
    multiplied with."""
    form = run_form(weight.spec, weight.shape[1], scale_dtype=weight.scale_dtype)
    held = to_native(weight, form)
    if activations is not None and activations != form.activations:
        form = replace(form, activations=_chosen(weight, held, form, activations))
    return _Held(weight=held, form=form)


def _chosen(
    weight: CoreWeight, held: CoreWeight, form: RunForm, activations: ActivationDType
) -> ActivationDType:
    """Returns the inputs that were asked for, or finer ones. Weights that take no bf16 inputs read
    floats unrounded; weights that take no integers read their own inputs where integers are asked
    for."""
    possible = [
        one
        for one in held.spec.possible_activations
        if one != "int8_static" or weight.input_scale is not None
    ]
    if activations in possible:
        return activations
    if activations.startswith("int") and "int8_group" not in possible:
        return form.activations
    if activations == "bf16" and "fp32" in possible:
        return "fp32"
    raise ConfigError(
        f"{held.spec.name} weights cannot be multiplied with such activations",
        seen=activations,
        remedy=f"Possible: {', '.join(possible)}.",
    )


def _source(held: _Held, bias: Vector | None) -> LinearSource:
    """Returns the arrays for the core. Groups with integer steps run as int8 rows if the inputs
    have one scale for a row too."""
    weight, form = held.weight, held.form
    arrays = {**weight.arrays(), **named_arrays(bias=bias)}
    if form.may_have_steps and (found := integer_steps(weight)) is not None:
        arrays |= {"scales": found[0][:, None], "steps": found[1]}
    return LinearSource(
        kind=form.kind,
        activations=form.activations,
        group_size=form.group_size or weight.shape[1],
        input_scale=weight.input_scale or 0.0,
        arrays=arrays,
    )


def _stack_biases(weights: Sequence[CoreWeight], biases: Sequence[Vector | None]) -> Vector | None:
    if all(bias is None for bias in biases):
        return None
    parts = [
        np.zeros(weight.shape[0], dtype=np.float32) if bias is None else bias
        for weight, bias in zip(weights, biases, strict=True)
    ]
    return np.concatenate(parts)
