"""Checks fields that repeat, under any name, what was read from other fields: such a field changes
nothing if it agrees."""

import math
from collections.abc import Callable, Iterable, Mapping

from paredown.models.families.fields import ACTIVATIONS
from paredown.models.families.gated_rotary import FULL, SLIDING
from paredown.spec.attention import Attention
from paredown.spec.experts import Experts
from paredown.spec.model import ModelSpec

Agrees = Callable[[ModelSpec, object, Mapping[str, object]], bool]
# Falcon 3's names for a gated MLP with its activation.
_GATED = {"swiglu": "silu", "geglu": "gelu"}
_NORM_KINDS = {"rmsnorm": "rms", "rms_norm": "rms", "layernorm": "layer", "layer_norm": "layer"}
_TOLERANCE = 1e-6


def _same(value: object, expected: Iterable[object]) -> bool:
    """Returns whether every layer has that value."""
    return all(_equal(value, one) for one in expected)


def _equal(value: object, expected: object) -> bool:
    if _is_number(value) and _is_number(expected):
        return math.isclose(float(str(value)), float(str(expected)), rel_tol=_TOLERANCE)
    return value == expected


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _of_model(read: Callable[[ModelSpec], object]) -> Agrees:
    return lambda spec, value, _config: _same(value, [read(spec)])


def _of_attention(read: Callable[[Attention], object]) -> Agrees:
    return lambda spec, value, _config: _same(
        value, [read(layer.attention) for layer in spec.layer_counts]
    )


def _of_experts(read: Callable[[Experts], object]) -> Agrees:
    return lambda spec, value, _config: (
        spec.has_experts and _same(value, map(read, spec.expert_kinds))
    )


def _theta(attention: Attention) -> object:
    return None if attention.rotary is None else attention.rotary.theta


def _share(attention: Attention) -> object:
    return None if attention.rotary is None else attention.rotary.share


def _activation(spec: ModelSpec, value: object, _config: Mapping[str, object]) -> bool:
    known = ACTIVATIONS.get(_GATED.get(str(value), str(value)))
    return all(layer.mlp.activation == known for layer in spec.layer_counts)


def _norm_kind(spec: ModelSpec, value: object, _config: Mapping[str, object]) -> bool:
    return _NORM_KINDS.get(str(value)) == spec.last_norm.kind


def _window(spec: ModelSpec, value: object, config: Mapping[str, object]) -> bool:
    if not value or config.get("use_sliding_window") is False:
        return True
    is_wide = isinstance(value, int) and value >= spec.max_positions
    return is_wide or _same(value, (layer.attention.window for layer in spec.layer_counts))


def _uses_window(spec: ModelSpec, value: object, config: Mapping[str, object]) -> bool:
    wants = bool(value) and bool(config.get("sliding_window"))
    return wants == bool(spec.windows)


def _layer_types(spec: ModelSpec, value: object, _config: Mapping[str, object]) -> bool:
    own = [FULL if layer.attention.window is None else SLIDING for layer in spec.layers]
    return value == own


def _pattern(spec: ModelSpec, value: object, _config: Mapping[str, object]) -> bool:
    """Returns whether every n-th layer has no window, or no layer has one."""
    if not spec.windows or not value or not isinstance(value, int):
        return not value or not spec.windows
    return all(
        (layer.attention.window is None) == ((number + 1) % value == 0)
        for number, layer in enumerate(spec.layers)
    )


def _turned(spec: ModelSpec, value: object, _config: Mapping[str, object]) -> bool:
    own = [int(layer.attention.rotary is not None) for layer in spec.layers]
    return not value or value == own


def _turned_interval(spec: ModelSpec, value: object, _config: Mapping[str, object]) -> bool:
    if not value or not isinstance(value, int):
        return not value
    return all(
        (layer.attention.rotary is None) == ((number + 1) % value == 0)
        for number, layer in enumerate(spec.layers)
    )


def _head_norms(spec: ModelSpec, value: object, _config: Mapping[str, object]) -> bool:
    return all((layer.norms.q is not None) == bool(value) for layer in spec.layer_counts)


def _max_window_layers(spec: ModelSpec, value: object, _config: Mapping[str, object]) -> bool:
    return not spec.windows or value == [layer.attention.window for layer in spec.layers].count(
        None
    )


def _is_parallel(spec: ModelSpec, value: object, _config: Mapping[str, object]) -> bool:
    return all((layer.residual != "sequential") == value for layer in spec.layer_counts)


def _scalar(attention: Attention) -> object:
    """Returns the number whose square root divides the scores."""
    return attention.score_scale**-2


_HIDDEN = _of_model(lambda spec: spec.hidden_size)
_LAYERS = _of_model(lambda spec: spec.num_layers)
_HEADS = _of_attention(lambda attention: attention.num_heads)
_KV_HEADS = _of_attention(lambda attention: attention.num_kv_heads)
_HEAD_DIM = _of_attention(lambda attention: attention.head_dim)
_EPS = _of_model(lambda spec: spec.last_norm.eps)
_POSITIONS = _of_model(lambda spec: spec.max_positions)
AGREES: Mapping[str, Agrees] = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "word_embed_proj_dim"), _HIDDEN),
    **dict.fromkeys(("embedding_size", "dim_model_base"), _HIDDEN),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), _LAYERS),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), _HEADS),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "n_head_kv"), _KV_HEADS),
    **dict.fromkeys(("head_dim", "v_head_dim", "qk_head_dim", "kv_channels"), _HEAD_DIM),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), _POSITIONS),
    **dict.fromkeys(
        ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps", "norm_epsilon"), _EPS
    ),
    **dict.fromkeys(
        ("hidden_act", "hidden_activation", "activation_function", "activation"), _activation
    ),
    **dict.fromkeys(("rope_theta", "rotary_emb_base"), _of_attention(_theta)),
    **dict.fromkeys(("partial_rotary_factor", "rotary_pct", "rope_pct"), _of_attention(_share)),
    "rotary_dim": _of_attention(
        lambda one: one.rotary and one.rotary.rotated_columns(one.head_dim)
    ),
    "attention_multiplier": _of_attention(lambda attention: attention.score_scale),
    "query_pre_attn_scalar": _of_attention(_scalar),
    **dict.fromkeys(("use_qk_norm", "qk_layernorm", "qk_norm", "use_qk_layernorm"), _head_norms),
    **dict.fromkeys(
        ("sliding_window", "sliding_window_size", "attention_window_size", "window_size"), _window
    ),
    "use_sliding_window": _uses_window,
    "max_window_layers": _max_window_layers,
    "layer_types": _layer_types,
    **dict.fromkeys(
        ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers"),
        _pattern,
    ),
    **dict.fromkeys(("norm_type", "normalization_function"), _norm_kind),
    "no_rope_layers": _turned,
    "no_rope_layer_interval": _turned_interval,
    "use_parallel_residual": _is_parallel,
    **dict.fromkeys(
        ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk"),
        _of_experts(lambda experts: experts.num_per_token),
    ),
    "norm_topk_prob": _of_experts(lambda experts: experts.is_normalized),
    "moe_renormalize": _of_experts(lambda experts: experts.is_normalized),
    "moe_intermediate_size": _of_experts(lambda experts: experts.size),
}
