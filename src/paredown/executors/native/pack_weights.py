"""From a checkpoint's weights to the native core's, one layer at a time."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paredown.errors import ConfigError
from paredown.executors.native.native_form import to_native
from paredown.formats.dequantize import dequantize
from paredown.formats.floating import to_weight
from paredown.formats.integer_steps import integer_steps
from paredown.formats.stack import stack_rows
from paredown.formats.tensor import StoredTensor
from paredown.formats.weight import Weight
from paredown.kernels.linear_source import LinearSource, named_arrays
from paredown.kernels.native_model import NativeModel
from paredown.models.checkpoint import Checkpoint
from paredown.spec.experts import split_role
from paredown.spec.model import LearnedPositions, ModelSpec
from paredown.spec.weight import ActivationDType, WeightDType, WeightSpec

Vector = npt.NDArray[np.float32]

_STORED_WEIGHT_DTYPES: dict[str, WeightDType] = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}


def pack_weights(
    checkpoint: Checkpoint, model: NativeModel, activations: ActivationDType | None
) -> None:
    """`activations` None reads the input of each linear layer as its format says. Raises
    ConfigError for activations that a weight cannot be multiplied with."""
    _load_tables(checkpoint, model, activations)
    for layer in range(checkpoint.spec.num_layers):
        _load_layer(checkpoint, model, layer, activations)


def _load_tables(
    checkpoint: Checkpoint, model: NativeModel, activations: ActivationDType | None
) -> None:
    output = _with_activations(to_native(checkpoint.output()), activations)
    _add_linears(model, "output", 0, [output], [None])
    if checkpoint.spec.tied_embeddings and not output.spec.is_quantized:
        model.tie_embedding()
    else:
        embedding = checkpoint.embedding()
        if embedding.spec.is_quantized:
            # The core reads single rows of floats alone, tied or not.
            embedding, _ = to_weight(dequantize(embedding), embedding.scale_dtype)
        model.set_embedding(embedding.spec.dtype, np.ascontiguousarray(embedding.values_OI))
    positions = checkpoint.position_embedding()
    if positions is not None:
        assert isinstance(checkpoint.spec.positions, LearnedPositions)
        weight = _float_weight(positions)
        model.set_positions(
            weight.spec.dtype,
            np.ascontiguousarray(weight.values_OI),
            checkpoint.spec.positions.offset,
        )
    _load_norm(checkpoint, model, "final_norm", None)


def _load_layer(
    checkpoint: Checkpoint, model: NativeModel, layer: int, activations: ActivationDType | None
) -> None:
    spec = checkpoint.spec
    _load_norm(checkpoint, model, "attention_norm", layer)
    _load_norm(checkpoint, model, "mlp_norm", layer)
    if spec.qk_norm:
        _load_norm(checkpoint, model, "q_norm", layer)
        _load_norm(checkpoint, model, "k_norm", layer)
    for role in spec.router_shapes(layer):
        # In float32 whatever it is stored in: it decides where a token goes.
        router = Weight(
            spec=WeightSpec(dtype="fp32"), values_OI=checkpoint.router(role, layer).to_float32()
        )
        _add_linears(model, role, layer, [router], [None])
    for group, roles in _groups(spec, layer).items():
        stored = [to_native(checkpoint.linear(role, layer)) for role in roles]
        weights = [_with_activations(weight, activations) for weight in stored]
        biases = [checkpoint.vector(f"{role}.bias", layer) for role in roles]
        _add_linears(model, group, layer, weights, biases)


def _groups(spec: ModelSpec, layer: int) -> dict[str, tuple[str, ...]]:
    """Roles by the core's name for those that read one input."""
    groups: dict[str, tuple[str, ...]] = {"qkv": ("q", "k", "v"), "o": ("o",)}
    for role in spec.linear_shapes(layer):
        owner, own = split_role(role)
        prefix = f"{owner}." if owner else ""
        if own == "up":
            groups[role] = (f"{prefix}gate", role) if spec.gated else (role,)
        elif own == "down":
            groups[role] = (role,)
    return groups


def _load_norm(checkpoint: Checkpoint, model: NativeModel, role: str, layer: int | None) -> None:
    weight = checkpoint.vector(f"{role}.weight", layer)
    assert weight is not None, f"{role} has no weight"
    model.set_norm(role, layer or 0, weight, checkpoint.vector(f"{role}.bias", layer))


def _add_linears(
    model: NativeModel,
    group: str,
    layer: int,
    weights: Sequence[Weight],
    biases: Sequence[Vector | None],
) -> None:
    """Weights of equal format become one; others stay side by side."""
    if len({(weight.spec, weight.scale_dtype, weight.input_scale) for weight in weights}) == 1:
        weights, biases = [stack_rows(weights)], [_stack_biases(weights, biases)]
    for weight, bias in zip(weights, biases, strict=True):
        model.add_linear(group, layer, _source(weight, bias))


def _with_activations(weight: Weight, activations: ActivationDType | None) -> Weight:
    """The weight, to be multiplied with other activations than its format says."""
    if activations is None or activations == weight.spec.activations:
        return weight
    possible = [
        one
        for one in weight.spec.possible_activations
        if one != "int8_static" or weight.input_scale is not None
    ]
    if activations not in possible:
        raise ConfigError(
            f"{weight.spec.name} weights cannot be multiplied with such activations",
            seen=activations,
            remedy=f"Possible: {', '.join(possible)}.",
        )
    return replace(weight, spec=replace(weight.spec, activations=activations))


def _source(weight: Weight, bias: Vector | None) -> LinearSource:
    """Groups with integer steps run as int8 rows where the inputs have one scale for a row too."""
    scales_OG, steps_OG = weight.scales_OG, None
    if weight.spec.has_input_scheme and (found := integer_steps(weight)) is not None:
        scales_OG, steps_OG = found[0][:, None], found[1]
    return LinearSource(
        kind=weight.spec.dtype,
        activations=weight.spec.activations,
        group_size=weight.spec.group_size or weight.shape[1],
        input_scale=weight.input_scale or 0.0,
        arrays=named_arrays(
            values=np.ascontiguousarray(weight.values_OI),
            scales=scales_OG,
            zero_points=weight.zero_points_OG,
            steps=steps_OG,
            bias=bias,
        ),
    )


def _stack_biases(weights: Sequence[Weight], biases: Sequence[Vector | None]) -> Vector | None:
    if all(bias is None for bias in biases):
        return None
    parts = [
        np.zeros(weight.shape[0], dtype=np.float32) if bias is None else bias
        for weight, bias in zip(weights, biases, strict=True)
    ]
    return np.concatenate(parts)


def _float_weight(tensor: StoredTensor) -> Weight:
    spec = WeightSpec(dtype=_STORED_WEIGHT_DTYPES[tensor.dtype])
    return Weight(spec=spec, values_OI=tensor.array)
