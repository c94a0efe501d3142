"""Builds the native model with the weights of a PyTorch decoder of any spec, without files."""

import numpy as np
import torch

from paredown.executors.native.native_executor import NativeExecutor
from paredown.kernels.linear_source import LinearSource, named_arrays
from paredown.kernels.native_model import NativeModel
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.decoder.decoder import Decoder
from paredown.spec.context import Context
from paredown.spec.kv import KVSpec
from paredown.spec.model import ModelSpec
from paredown.spec.norm import Norm
from paredown.spec.roles import row_groups


def random_decoder(spec: ModelSpec, seed: int = 0) -> Decoder:
    """Returns a decoder with PyTorch's random weights and biases, norms and their biases near their
    initial values, and an embedding of unit variance."""
    torch.manual_seed(seed)
    decoder = Decoder(spec).requires_grad_(False).eval()
    for name, values in decoder.named_parameters():
        if "norm" in name:
            values += 0.1 * torch.randn_like(values)
    return decoder


def native_twin(decoder: Decoder, kv: KVSpec, num_threads: int = 1) -> NativeExecutor:
    """Returns the model in float32, with pages in the format `kv`."""
    spec = decoder.spec
    model = NativeModel(Context(spec=spec), kv, ThreadPlan(prefill=num_threads, decode=num_threads))
    model.add_linear("output", 0, _source([decoder.output]))
    model.set_embedding("fp32", decoder.embedding.weight.numpy())
    _set_norm(model, "final_norm", 0, spec.final_norm, decoder.final_norm)
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
    return NativeExecutor(model, kv)


def _source(linears: list[torch.nn.Module]) -> LinearSource:
    values = torch.cat([linear.weight for linear in linears]).numpy()
    biases = [linear.bias for linear in linears if linear.bias is not None]
    return LinearSource(
        kind="fp32",
        activations="fp32",
        group_size=values.shape[1],
        arrays=named_arrays(values=values, bias=torch.cat(biases).numpy() if biases else None),
    )


def _set_norm(
    model: NativeModel, role: str, layer: int, norm: Norm, module: torch.nn.Module
) -> None:
    bias = module.bias.numpy() if norm.has_bias else None
    weight = module.weight.numpy() + np.float32(norm.offset)
    model.set_norm(role, layer, weight, bias)
