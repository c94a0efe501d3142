"""Builds the native model with the weights of a PyTorch decoder of any spec, without files."""

import numpy as np
import torch

from paredown.executors.native.native_encoder import NativeEncoder
from paredown.executors.native.native_executor import NativeExecutor
from paredown.kernels.linear_source import LinearSource, named_arrays
from paredown.kernels.native_model import NativeModel
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.decoder.decoder import Decoder
from paredown.spec.context import Context
from paredown.spec.kv import KVDType, KVSpec
from paredown.spec.model import ModelSpec
from paredown.spec.norm import Norm
from paredown.spec.roles import row_groups


def random_decoder(spec: ModelSpec, seed: int = 0) -> Decoder:
    """Returns a decoder with PyTorch's random weights and biases, norms and their biases near their
    initial values, and an embedding of unit variance."""
    torch.manual_seed(seed)
    decoder = Decoder(spec).requires_grad_(False).eval()
    for name, values in decoder.named_parameters():
        if name.startswith("head.") and "norm" not in name:
            values.normal_(std=0.2)  # PyTorch leaves these as memory was
        if "norm" in name:
            values += 0.1 * torch.randn_like(values)
    return decoder


def native_twin(decoder: Decoder, kv: KVSpec, num_threads: int = 1) -> NativeExecutor:
    """Returns the model in float32, with pages in the format `kv`."""
    return NativeExecutor(native_model(decoder, kv, num_threads), kv)


def native_encoder_twin(
    decoder: Decoder, kv_dtype: KVDType = "fp32", num_threads: int = 1
) -> NativeEncoder:
    """Returns the model in float32; `kv_dtype` is that of keys and values while a layer runs."""
    kv = KVSpec(num_pages=0, dtype=kv_dtype)
    return NativeEncoder(native_model(decoder, kv, num_threads), kv)


def native_model(decoder: Decoder, kv: KVSpec, num_threads: int = 1) -> NativeModel:
    """Returns the core's model with all weights in float32."""
    spec = decoder.spec
    model = NativeModel(Context(spec=spec), kv, ThreadPlan(prefill=num_threads, decode=num_threads))
    if spec.generates:
        model.add_linear("output", 0, _source([decoder.output]))
    _set_tables(model, decoder)
    _set_head(model, decoder)
    for index, layer in enumerate(spec.layers):
        modules = decoder.layers[index]
        for role, norm in layer.norms.by_role().items():
            _set_norm(model, role, index, norm, modules.get_submodule(role))
        groups = row_groups(layer.linear_shapes(spec.hidden_size))
        groups |= {role: (role,) for role in layer.router_shapes(spec.hidden_size)}
        for group, roles in groups.items():
            source = _source([modules.get_submodule(role) for role in roles])
            model.add_linear(group, index, source)
    model.check_weights()
    return model


def _set_tables(model: NativeModel, decoder: Decoder) -> None:
    spec = decoder.spec
    model.set_embedding("fp32", decoder.embedding.weight.numpy())
    if spec.embedding.positions is not None:
        table, offset = decoder.position_embedding.weight.numpy(), spec.embedding.positions.offset
        model.set_positions("fp32", table, offset)
    if spec.embedding.num_token_types:
        model.set_token_types("fp32", decoder.token_type_embedding.weight.numpy())
    if spec.embedding.norm is not None:
        _set_norm(model, "embedding_norm", 0, spec.embedding.norm, decoder.embedding_norm)
    if spec.final_norm is not None:
        _set_norm(model, "final_norm", 0, spec.final_norm, decoder.final_norm)


def _set_head(model: NativeModel, decoder: Decoder) -> None:
    head = decoder.spec.head
    for role, step in ({} if head is None else head.steps_by_role()).items():
        module = decoder.get_submodule(role)
        weight = decoder.embedding.weight if step.is_tied else module.weight
        bias = module.bias if step.has_bias else None
        model.add_linear(role, 0, _float_source(weight, bias))
        if step.norm is not None:
            _set_norm(model, f"{role}.norm", 0, step.norm, module.norm)


def _source(linears: list[torch.nn.Module]) -> LinearSource:
    biases = [linear.bias for linear in linears if linear.bias is not None]
    return _float_source(
        torch.cat([linear.weight for linear in linears]), torch.cat(biases) if biases else None
    )


def _float_source(weight_OI: torch.Tensor, bias_O: torch.Tensor | None) -> LinearSource:
    return LinearSource(
        kind="fp32",
        activations="fp32",
        group_size=weight_OI.shape[1],
        arrays=named_arrays(
            values=weight_OI.numpy(), bias=None if bias_O is None else bias_O.numpy()
        ),
    )


def _set_norm(
    model: NativeModel, role: str, layer: int, norm: Norm, module: torch.nn.Module
) -> None:
    bias = module.bias.numpy() if norm.has_bias else None
    weight = module.weight.numpy() + np.float32(norm.offset)
    model.set_norm(role, layer, weight, bias)
