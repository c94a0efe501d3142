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
from paredown.kernels.relative_table import relative_table
from paredown.models.checkpoint import Checkpoint
from paredown.spec.model import ModelSpec
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
    _load_outputs(checkpoint, model, activations)
    _load_tables(checkpoint, model)
    for layer in range(checkpoint.spec.num_layers):
        _load_layer(checkpoint, model, layer, activations)
    model.check_weights()


def _load_outputs(
    checkpoint: Checkpoint, model: NativeModel, activations: ActivationDType | None
) -> None:
    """Loads the output layer and the head, where there are any."""
    spec = checkpoint.spec
    if spec.generates:
        output = _held(checkpoint.output(), activations)
        _add_linears(model, "output", 0, [output], [checkpoint.vector("output.bias", None)])
    for role, step in ({} if spec.head is None else spec.head.steps_by_role()).items():
        weight = _held(checkpoint.head_weight(role), activations)
        _add_linears(model, role, 0, [weight], [checkpoint.head_vector(f"{role}.bias")])
        if step.norm is not None:
            scale = checkpoint.head_vector(f"{role}.norm.weight")
            assert scale is not None, f"{role}.norm has no weight"
            shift = checkpoint.head_vector(f"{role}.norm.bias")
            model.set_norm(f"{role}.norm", 0, _with_offset(scale, step.norm), shift)


def _load_tables(checkpoint: Checkpoint, model: NativeModel) -> None:
    """Loads the embedding and what is added to it, the norms outside the layers, and relative
    positions."""
    spec = checkpoint.spec
    if embedding_is_output(checkpoint):
        model.tie_embedding()
    else:
        _load_embedding(_held(checkpoint.embedding(), None), model)
    positions = checkpoint.position_embedding()
    if positions is not None:
        learned = spec.embedding.positions
        assert learned is not None
        model.set_positions(STORED_DTYPES[positions.dtype], positions.array, learned.offset)
    types = checkpoint.token_type_embedding()
    if types is not None:
        model.set_token_types(STORED_DTYPES[types.dtype], types.array)
    biases = checkpoint.relative_biases()
    if biases is not None:
        model.set_relative(_relative_table(spec, biases.to_float32()))
    for role, norm in (("embedding_norm", spec.embedding.norm), ("final_norm", spec.final_norm)):
        if norm is not None:
            _load_norm(checkpoint, model, norm, role, None)


def _relative_table(spec: ModelSpec, biases_RH: Vector) -> Vector:
    attentions = (layer.attention for layer in spec.layer_counts)
    attention = next(one for one in attentions if one.relative is not None)
    assert attention.relative is not None
    return relative_table(attention.relative, biases_RH, is_causal=attention.is_causal)


def _load_embedding(embedding: _Held, model: NativeModel) -> None:
    """Loads floats as a table, and codes as a linear layer where its rows can be read."""
    weight = embedding.weight
    if weight.spec.is_quantized and embedding.form.has_rows:
        _add_linears(model, "embedding", 0, [embedding], [None])
        return
    if weight.spec.is_quantized:
        weight = float_weight(weight.dequantize(), weight.scale_dtype)[0]
    model.set_embedding(weight.spec.dtype, weight.arrays()["values"])


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
    weight = _with_offset(weight, norm)
    if heads is not None and role in ("q_norm", "k_norm"):
        weight = heads.norm(weight)
    model.set_norm(role, layer or 0, weight, checkpoint.vector(f"{role}.bias", layer))


def _with_offset(weight: Vector, norm: Norm) -> Vector:
    return weight + np.float32(norm.offset) if norm.offset else weight


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
