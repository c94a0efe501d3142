"""What the native core is told of a model, and which models it does not run."""

from collections.abc import Collection, Iterator
from dataclasses import replace

from paredown.errors import UnsupportedError
from paredown.spec.attention import Attention
from paredown.spec.context import Context
from paredown.spec.experts import Experts
from paredown.spec.kv import KVSpec
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import ModelSpec

# The core works on 16 lanes; these sizes must be whole numbers of them.
LANES = 16


def check_native(spec: ModelSpec) -> None:
    """Raises UnsupportedError, naming what of the model the native core does not run."""
    _check_lanes("hidden_size", spec.hidden_size)
    for layer in spec.layer_counts:
        for name, size in _layer_sizes(layer).items():
            _check_lanes(name, size)
    lacking = native_lacks(spec)
    if lacking is not None:
        raise UnsupportedError(
            f"the native executor does not run {spec.family} as its config asks for",
            seen=lacking,
            remedy="Run this model with the PyTorch decoder.",
        )


def native_lacks(spec: ModelSpec) -> str | None:
    """What of the model the native core does not compute, in words; None where it runs."""
    layers = spec.layer_counts
    lacking = {
        "a cap of scores": any(one.attention.soft_cap is not None for one in layers),
        "a cap of logits": spec.output.soft_cap is not None,
        "attention to later tokens": not all(one.attention.is_causal for one in layers),
        "a parallel residual": any(one.residual == "parallel" for one in layers),
        "norms after attention or MLP": any(
            one.norms.attention_output or one.norms.mlp_output for one in layers
        ),
        "no norm before attention or MLP": any(
            one.norms.attention is None or one.norms.mlp is None for one in layers
        ),
        "partly rotated heads": any(
            one.attention.rotary is not None and one.attention.rotary.share != 1 for one in layers
        ),
        "a scale of scores": any(one.attention.scale is not None for one in layers),
        "multipliers": any(one.residual_multiplier != 1 for one in layers)
        or spec.embedding.multiplier != 1
        or spec.output.multiplier != 1,
        "layers of different sizes": any(len(set(kinds)) > 1 for kinds in _kinds(layers)),
    }
    found = [words for words, is_there in lacking.items() if is_there]
    return ", ".join(found) or None


def _kinds(layers: Collection[LayerSpec]) -> Iterator[list[object]]:
    """Of what layers may not differ in."""
    yield [replace(layer.attention, window=None) for layer in layers]
    yield [layer.norms for layer in layers]
    yield [layer.mlp for layer in layers if not layer.has_experts]
    yield [layer.mlp for layer in layers if layer.has_experts]
    yield [(layer.mlp.is_gated, layer.mlp.activation) for layer in layers]


def _layer_sizes(layer: LayerSpec) -> dict[str, int]:
    sizes = {"head_dim": layer.attention.head_dim}
    if isinstance(layer.mlp, Mlp):
        return sizes | {"intermediate_size": layer.mlp.size}
    sizes["experts.intermediate_size"] = layer.mlp.size
    return sizes | {"experts.shared_intermediate_size": layer.mlp.shared_size or 0}


def _check_lanes(name: str, size: int) -> None:
    if size % LANES != 0:
        raise UnsupportedError(
            f"The native executor needs {name} to be a multiple of {LANES}",
            seen=f"{name} = {size}",
            remedy="Run this model with the PyTorch decoder.",
        )


def core_config(context: Context, kv: KVSpec) -> dict[str, object]:
    """The core's own description. Raises UnsupportedError for a model that it does not run."""
    spec = context.spec
    check_native(spec)
    attention, mlp = spec.layers[0].attention, _dense(spec)
    windows = [context.layer_window(layer) or 0 for layer in range(spec.num_layers)]
    return {
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.hidden_size,
        "num_layers": spec.num_layers,
        "num_heads": attention.num_heads,
        "num_kv_heads": attention.num_kv_heads,
        "head_dim": attention.head_dim,
        "intermediate_size": mlp.size,
        "max_positions": context.max_request_tokens,
        "windows": windows,
        "num_sinks": context.num_sink_tokens,
        "norm": spec.final_norm.kind,
        "norm_eps": spec.final_norm.eps,
        "activation": mlp.activation,
        "gated": mlp.is_gated,
        "kv_dtypes": list(kv.layer_dtypes(spec.num_layers)),
        "num_pages": kv.num_pages,
        "inverse_frequencies": _frequencies(attention),
        **_expert_config(spec),
    }


def _frequencies(attention: Attention) -> list[float]:
    rotary = attention.rotary
    return [] if rotary is None else rotary.inverse_frequencies(attention.head_dim)


def _dense(spec: ModelSpec) -> Mlp:
    for layer in spec.layer_counts:
        if isinstance(layer.mlp, Mlp):
            return layer.mlp
    experts = spec.layers[0].experts
    assert experts is not None
    return experts.expert


def _expert_config(spec: ModelSpec) -> dict[str, object]:
    experts = [layer.mlp for layer in spec.layer_counts if isinstance(layer.mlp, Experts)]
    one = experts[0] if experts else None
    layers = [layer.has_experts for layer in spec.layers] if one is not None else []
    return {
        "num_experts": 0 if one is None else one.num,
        "experts_per_token": 0 if one is None else one.num_per_token,
        "expert_intermediate_size": 0 if one is None else one.size,
        "shared_intermediate_size": 0 if one is None else one.shared_size or 0,
        "normalized_experts": one is not None and one.is_normalized,
        "expert_layers": layers,
    }
