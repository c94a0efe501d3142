"""The native core's configuration of a model, and which models the core does not run."""

from paredown.errors import UnsupportedError
from paredown.kernels import _core
from paredown.kernels.padded_heads import LANES, score_scale
from paredown.spec.attention import Attention
from paredown.spec.context import Context
from paredown.spec.experts import Experts
from paredown.spec.head import Head, HeadStep
from paredown.spec.kv import KVSpec
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import ModelSpec, Output
from paredown.spec.norm import Norm

# Not every command takes the option, and those that verify use the native core.
NOT_NATIVE_REMEDY = (
    "Run this model on the PyTorch decoder: generate, chat, serve and bench take --executor torch; "
    "compress and convert write it with --no-verify."
)


def check_native(spec: ModelSpec) -> None:
    """Raises UnsupportedError that names the part of the model which the native core does not
    run."""
    _check_lanes("hidden_size", spec.hidden_size)
    _check_counts(spec)
    for layer in spec.layer_counts:
        for name, size in _layer_sizes(layer).items():
            _check_lanes(name, size)
    for name, size in ({} if spec.head is None else _head_sizes(spec.head)).items():
        _check_lanes(name, size)
    lacking = native_lacks(spec)
    if lacking is not None:
        raise UnsupportedError(
            f"the native executor does not run {spec.family} as its config asks for",
            seen=lacking,
            remedy=NOT_NATIVE_REMEDY,
        )


def native_lacks(spec: ModelSpec) -> str | None:
    """Returns in words what the native core does not compute of the model; None where it runs the
    model."""
    lacking = {
        "predictions by tokens that see later ones": spec.generates and not spec.is_causal,
        "norms on the sums of a parallel layer": any(
            layer.is_parallel and _has_sum_norm(layer) for layer in spec.layer_counts
        ),
        "a head with several steps tied to the embedding": _num_tied_steps(spec) > 1,
    }
    found = [words for words, is_there in lacking.items() if is_there]
    return ", ".join(found) or None


def _has_sum_norm(layer: LayerSpec) -> bool:
    return layer.norms.attention_sum is not None or layer.norms.mlp_sum is not None


def _num_tied_steps(spec: ModelSpec) -> int:
    steps = {} if spec.head is None else spec.head.steps_by_role()
    return sum(step.is_tied for step in steps.values())


def _head_sizes(head: Head) -> dict[str, int]:
    """Returns the sizes of the steps with a norm, by role."""
    steps = head.steps_by_role()
    return {f"{role}.size": step.size for role, step in steps.items() if step.norm is not None}


def _layer_sizes(layer: LayerSpec) -> dict[str, int]:
    sizes = {"head_dim": layer.attention.head_dim}
    if isinstance(layer.mlp, Mlp):
        return sizes | {"intermediate_size": layer.mlp.size}
    sizes["experts.intermediate_size"] = layer.mlp.size
    return sizes | {"experts.shared_intermediate_size": layer.mlp.shared_size or 0}


def _check_counts(spec: ModelSpec) -> None:
    """Raises UnsupportedError for sizes above the core's limits. They exceed any real model, but a
    config may contain them."""
    counts = [("vocab_size", spec.vocab_size, _core.MAX_SIZE)]
    counts.append(("hidden_size", spec.hidden_size, _core.MAX_SIZE))
    for layer in spec.layer_counts:
        attention, mlp = layer.attention, layer.mlp
        heads = attention.num_heads + 2 * attention.num_kv_heads
        counts.append(("head_dim", attention.head_dim, _core.MAX_HEAD_DIM))
        counts.append(("rows of q, k and v", heads * attention.head_dim, _core.MAX_SIZE))
        widest = mlp.size
        if isinstance(mlp, Experts):
            counts.append(("num_experts", mlp.num, _core.MAX_EXPERTS))
            widest = max(mlp.size, mlp.shared_size or 0)
        counts.append(("rows of gate and up", 2 * widest, _core.MAX_SIZE))
    for name, count, most in counts:
        if count > most:
            raise UnsupportedError(
                f"the native core holds no model of so many {name}",
                seen=f"{count}, at most {most}",
                remedy=NOT_NATIVE_REMEDY,
            )


def _check_lanes(name: str, size: int) -> None:
    if size % LANES != 0:
        raise UnsupportedError(
            f"The native executor needs {name} to be a multiple of {LANES}",
            seen=f"{name} = {size}",
            remedy=NOT_NATIVE_REMEDY,
        )


def core_config(context: Context, kv: KVSpec) -> dict[str, object]:
    """Returns the fields of ModelConfig (csrc/model/model_config.h). Raises UnsupportedError for a
    model that the core does not run."""
    spec = context.spec
    check_native(spec)
    kv_dtypes = kv.layer_dtypes(spec.num_layers)
    output = Output() if spec.output is None else spec.output
    return {
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.hidden_size,
        "max_positions": context.max_request_tokens,
        "num_pages": kv.num_pages,
        "num_sinks": context.num_sink_tokens,
        "embedding_multiplier": spec.embedding.multiplier,
        "num_token_types": spec.embedding.num_token_types,
        "embedding_norm": _optional_norm(spec.embedding.norm),
        "has_output": spec.generates,
        "output_multiplier": output.multiplier,
        "output_soft_cap": output.soft_cap or 0.0,
        "switch_tokens": spec.rotary_switch or 0,
        "final_norm": _optional_norm(spec.final_norm),
        "head": None if spec.head is None else _head_config(spec.head),
        "layers": [
            _layer_config(layer, context.layer_window(number), kv_dtypes[number])
            for number, layer in enumerate(spec.layers)
        ],
    }


def _layer_config(layer: LayerSpec, window: int | None, kv_dtype: str) -> dict[str, object]:
    norms = layer.norms.by_role()
    return {
        "attention": _attention_config(layer.attention, window),
        "cross": None if layer.cross is None else _attention_config(layer.cross, None),
        "mlp": _mlp_config(layer.mlp) if isinstance(layer.mlp, Mlp) else None,
        "experts": _expert_config(layer.mlp) if isinstance(layer.mlp, Experts) else None,
        "norms": {role: _norm_config(norm) for role, norm in norms.items()},
        "residual": layer.residual,
        "residual_multiplier": layer.residual_multiplier,
        "kv_dtype": kv_dtype,
    }


def _attention_config(attention: Attention, window: int | None) -> dict[str, object]:
    temperature = attention.temperature
    return {
        "num_heads": attention.num_heads,
        "num_kv_heads": attention.num_kv_heads,
        "head_dim": attention.head_dim,
        "is_causal": attention.is_causal,
        "window": window or 0,
        **_rotary_config(attention),
        "scale": score_scale(attention),
        "max_distance": 0 if attention.relative is None else attention.relative.max_distance,
        "growth_beta": 0.0 if temperature is None else temperature.beta,
        "growth_positions": 1 if temperature is None else temperature.num_positions,
        "norms_span_heads": attention.norms_span_heads,
        "soft_cap": attention.soft_cap or 0.0,
    }


def _rotary_config(attention: Attention) -> dict[str, object]:
    rotary, head_dim, long = attention.rotary, attention.head_dim, list[float]()
    if rotary is None:
        plain, factor = list[float](), 1.0
    else:
        plain, factor = rotary.inverse_frequencies(head_dim), rotary.attention_factor
        if rotary.switch_tokens is not None:
            long = rotary.inverse_frequencies(head_dim, rotary.switch_tokens + 1)
    return {
        "inverse_frequencies": plain,
        "long_inverse_frequencies": long,
        "attention_factor": factor,
    }


def _mlp_config(mlp: Mlp) -> dict[str, object]:
    return {"size": mlp.size, "gated": mlp.is_gated, "activation": mlp.activation}


def _expert_config(experts: Experts) -> dict[str, object]:
    return {
        "num": experts.num,
        "num_per_token": experts.num_per_token,
        "shared_size": experts.shared_size or 0,
        "is_normalized": experts.is_normalized,
        **_mlp_config(experts.expert),
    }


def _head_config(head: Head) -> dict[str, object]:
    return {
        "token_steps": [_step_config(step) for step in head.token_steps],
        "pooling": list(head.pooling),
        "steps": [_step_config(step) for step in head.steps],
        "is_normalized": head.is_normalized,
    }


def _step_config(step: HeadStep) -> dict[str, object]:
    return {
        "size": step.size,
        "activation": step.activation,
        "norm": _optional_norm(step.norm),
        "is_tied": step.is_tied,
    }


def _optional_norm(norm: Norm | None) -> dict[str, object] | None:
    return None if norm is None else _norm_config(norm)


def _norm_config(norm: Norm) -> dict[str, object]:
    return {"kind": norm.kind, "eps": norm.eps}
