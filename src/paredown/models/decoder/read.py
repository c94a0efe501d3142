"""Reads a checkpoint's tensors under the decoder's names: every weight as float32, codes
dequantized."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.layer import Layer
from paredown.models.decoder.norms import make_norm
from paredown.models.roles import layer_vectors, linear_roles, model_vectors


def read_state(checkpoint: Checkpoint, device: str = "cpu") -> dict[str, Tensor]:
    """Returns the checkpoint's tensors under `Decoder`'s names."""
    state = {name: values.to(device) for name, values in read_tables(checkpoint).items()}
    for layer in range(checkpoint.spec.num_layers):
        for name, values in read_layer(checkpoint, layer).items():
            state[f"layers.{layer}.{name}"] = values.to(device)
    return state


def read_tables(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Reads the tensors before and after the layers: embeddings, the last norm, the output
    layer."""
    state = {"embedding.weight": checkpoint.embedding().dequantize()}
    positions = checkpoint.position_embedding()
    if positions is not None:
        state["position_embedding.weight"] = positions.to_float32()
    types = checkpoint.token_type_embedding()
    if types is not None:
        state["token_type_embedding.weight"] = types.to_float32()
    if checkpoint.spec.has_own_output:
        state["output.weight"] = checkpoint.output().dequantize()
    for role in model_vectors(checkpoint.spec):
        state[role] = present(checkpoint.vector(role))
    return _tensors(state | _head_state(checkpoint))


def _head_state(checkpoint: Checkpoint) -> dict[str, npt.NDArray[np.float32]]:
    """Returns the weights, biases and norms of the head by their roles."""
    head = checkpoint.spec.head
    if head is None:
        return {}
    state = {
        f"{role}.weight": checkpoint.head_weight(role).dequantize()
        for role, step in head.steps_by_role().items()
        if not step.is_tied
    }
    return state | {role: present(checkpoint.head_vector(role)) for role in head.vector_sizes()}


def read_layer(checkpoint: Checkpoint, layer: int) -> dict[str, Tensor]:
    """Returns one transformer layer's tensors under `Layer`'s names."""
    state = {
        f"{role}.weight": checkpoint.linear(role, layer).dequantize()
        for role in linear_roles(checkpoint.spec, layer)
    }
    for role in checkpoint.spec.router_shapes(layer):
        state[f"{role}.weight"] = checkpoint.router(role, layer).to_float32()
    for role in layer_vectors(checkpoint.spec, layer):
        state[role] = present(checkpoint.vector(role, layer))
    relative = checkpoint.relative_biases()
    if relative is not None:
        state["relative_biases"] = relative.to_float32()
    return _tensors(state)


def load_layer(checkpoint: Checkpoint, index: int) -> Layer:
    """Loads one transformer layer in float32 and reads nothing else of the model."""
    with torch.device("meta"):
        layer = Layer(checkpoint.spec, index)
    layer.load_state_dict(read_layer(checkpoint, index), assign=True)
    return layer.requires_grad_(False).eval()


def load_final_norm(checkpoint: Checkpoint) -> nn.Module:
    """Loads the norm after the last layer, in float32."""
    norm = make_norm(checkpoint.spec.final_norm, checkpoint.spec.hidden_size)
    found = {key: present(checkpoint.vector(f"final_norm.{key}")) for key in norm.state_dict()}
    norm.load_state_dict(_tensors(found), assign=True)
    return norm.requires_grad_(False)


def embed_tokens(checkpoint: Checkpoint, ids_BT: npt.NDArray[np.int64]) -> Tensor:
    """Returns the first layer's input, [B, T, D]; only the rows of these tokens are read from the
    table. All tokens have type 0."""
    embedding = checkpoint.spec.embedding
    table, positions = checkpoint.embedding(), checkpoint.position_embedding()
    x_BTD = table.rows(ids_BT.reshape(-1)).dequantize().reshape(*ids_BT.shape, -1)
    if embedding.multiplier != 1:
        x_BTD = x_BTD * np.float32(embedding.multiplier)
    if positions is not None:
        assert embedding.positions is not None
        first = embedding.positions.offset
        x_BTD = x_BTD + positions.to_float32()[first : first + ids_BT.shape[1]]
    types = checkpoint.token_type_embedding()
    if types is not None:
        x_BTD = x_BTD + types.to_float32()[0]
    normed: Tensor = _embedding_norm(checkpoint)(torch.from_numpy(x_BTD))
    return normed


def _embedding_norm(checkpoint: Checkpoint) -> nn.Module:
    norm = checkpoint.spec.embedding.norm
    module = make_norm(norm, checkpoint.spec.hidden_size)
    parts = () if norm is None else norm.parts
    found = {part: present(checkpoint.vector(f"embedding_norm.{part}")) for part in parts}
    module.load_state_dict(_tensors(found), assign=True)
    return module.requires_grad_(False)


def present(values: npt.NDArray[np.float32] | None) -> npt.NDArray[np.float32]:
    assert values is not None
    return values


def _tensors(state: dict[str, npt.NDArray[np.float32]]) -> dict[str, Tensor]:
    """Copies the arrays to tensors: those of a mapped file are read-only, which torch does not
    support."""
    return {name: torch.from_numpy(values.copy()) for name, values in state.items()}
