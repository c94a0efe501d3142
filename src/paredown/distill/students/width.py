"""A student of a part of its teacher's width: the channels, neurons and heads of the largest
weights.

    channel d   sum over the matrices that write or read it of |W_d|^2 / |W|^2, each with its norm
    neuron j    |up_j| |down_j|, times |gate_j| where there is a gate
    head h      |v_h| |o_h|, over a key-value head with its query heads

Channels are the same in the whole model, since all layers add to them; neurons and heads are chosen
in each layer.

Shapes: D hidden channels, J neurons, H key-value heads.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from paredown.compress.cut.ffn import largest
from paredown.compress.cut.kept_units import Indices, KeptUnits
from paredown.models.decoder.decoder import Decoder
from paredown.spec.experts import split_role
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import ModelSpec

State = Mapping[str, Tensor]
_WRITERS = ("o", "down")


def sliced(decoder: Decoder, spec: ModelSpec) -> Decoder:
    """Returns the decoder of `spec`, which is narrower (kept_width.py), with the weights that are
    kept of `decoder`."""
    state = decoder.state_dict()
    before = decoder.spec
    channels = largest(_channel_scores(before, state), spec.hidden_size)
    made = {
        name: _of_tables(name, values, channels)
        for name, values in state.items()
        if not name.startswith("layers.")
    }
    for index, (layer, after) in enumerate(zip(before.layers, spec.layers, strict=True)):
        prefix = f"layers.{index}."
        own = {
            name.removeprefix(prefix): values
            for name, values in state.items()
            if name.startswith(prefix)
        }
        units = _units(index, layer, after, own)
        for name, values in own.items():
            made[prefix + name] = _of_layer(name, values, layer, units, channels)
    with torch.device("meta"):
        student = Decoder(spec)
    student.load_state_dict(made, assign=True)
    return student.requires_grad_(False).eval()


def _of_tables(name: str, values: Tensor, channels: Indices) -> Tensor:
    """Returns what stays of a tensor outside of the layers."""
    if name == "output.bias":
        return values
    return values[..., channels].contiguous()


def _of_layer(
    name: str, values: Tensor, layer: LayerSpec, units: KeptUnits, channels: Indices
) -> Tensor:
    """Returns what stays of a layer's tensor."""
    role, _, part = name.rpartition(".")
    attention = layer.attention
    if role in ("q_norm", "k_norm"):
        if not attention.norms_span_heads:
            return values
        rows = units.rows(role[0], layer)
    elif role in layer.norms.by_role():
        rows = channels
    else:
        rows = channels if split_role(role)[1] in _WRITERS else units.rows(role, layer)
    kept = values if rows is None else values[rows]
    if part == "weight" and values.ndim > 1:
        columns = units.columns(role, layer)
        kept = kept[:, channels if columns is None else columns]
    return kept.contiguous()


def _units(index: int, layer: LayerSpec, after: LayerSpec, state: State) -> KeptUnits:
    """Chooses the heads and neurons of a layer."""
    heads = _norms(state["v.weight"], layer.attention.num_kv_heads)
    heads = heads * _norms(state["o.weight"].T, layer.attention.num_kv_heads)
    neurons = {}
    for role in state:
        owner, own = split_role(role.removesuffix(".weight"))
        if own == "down":
            neurons[owner] = largest(_neuron_scores(owner, state), _size(after, owner))
    return KeptUnits(
        layer=index, heads=largest(heads, after.attention.num_kv_heads), neurons=neurons
    )


def _size(layer: LayerSpec, owner: str) -> int:
    if isinstance(layer.mlp, Mlp) or owner != "shared":
        return layer.mlp.size
    assert layer.mlp.shared_size is not None
    return layer.mlp.shared_size


def _neuron_scores(owner: str, state: State) -> Tensor:
    prefix = f"{owner}." if owner else ""
    up_JD, down_DJ = state[f"{prefix}up.weight"], state[f"{prefix}down.weight"]
    scores_J = _norms(up_JD, len(up_JD)) * _norms(down_DJ.T, len(up_JD))
    gate_JD = state.get(f"{prefix}gate.weight")
    return scores_J if gate_JD is None else scores_J * _norms(gate_JD, len(gate_JD))


def _norms(rows: Tensor, num: int) -> Tensor:
    """Returns the norm of each of `num` equal blocks of rows."""
    norms_H: Tensor = torch.linalg.vector_norm(rows.reshape(num, -1), dim=1)
    return norms_H


def _channel_scores(spec: ModelSpec, state: State) -> Tensor:
    """Returns the score of each hidden channel, [D]."""
    scores_D = _share(state["embedding.weight"])
    if spec.has_own_output:
        weight = state["final_norm.weight"] + spec.last_norm.offset
        scores_D = scores_D + _share(state["output.weight"] * weight)
    for index, layer in enumerate(spec.layers):
        norms = layer.norms.by_role()
        for role in spec.linear_shapes(index):
            prefix, own = f"layers.{index}.", split_role(role)[1]
            weight_OI = state[f"{prefix}{role}.weight"]
            is_writer = own in _WRITERS
            place = "attention" if role in ("q", "k", "v", "o") else "mlp"
            norm = f"{place}_output_norm" if is_writer else f"{place}_norm"
            if not is_writer and place == "mlp":
                norm = layer.mlp_norm_role
            weight_XD = weight_OI.T if is_writer else weight_OI
            if norm in norms:
                weight_XD = weight_XD * (state[f"{prefix}{norm}.weight"] + norms[norm].offset)
            scores_D = scores_D + _share(weight_XD)
    return scores_D


def _share(weight_XD: Tensor) -> Tensor:
    """Returns each channel's share of the matrix's squared norm."""
    squares_D = weight_XD.double().square().sum(0)
    return squares_D / squares_D.sum().clamp(min=torch.finfo(torch.float64).tiny)
