"""OLMo 2 and 3 (arXiv 2501.00656): norms after attention and MLP, and over all heads of query and
key. OLMo 3 has a window in three of four layers, whose rotary positions are never scaled."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from paredown.errors import UnsupportedError
from paredown.models.families import gated_rotary
from paredown.models.families.family import Family
from paredown.models.families.fields import Fields
from paredown.models.families.gated_rotary import (
    FULL,
    SLIDING,
    FamilyTraits,
    layer_kinds,
    read_gated_rotary,
)
from paredown.models.families.gguf_rows import PLAIN_KEYS, GGUFRows, Metadata, check_whole_turns
from paredown.models.families.rotary import read_rotary_by_kind
from paredown.shown import shown
from paredown.spec.layer import LayerSpec
from paredown.spec.model import ModelSpec
from paredown.spec.norm import Norms

_PATTERN = 4
_THETA = 500_000.0
# Replaces the fields that are read separately for each kind of layer.
_NO_ROTARY = {"rope_theta": _THETA, "rope_scaling": None, "rope_parameters": None}
_WINDOW_KEY = "olmo2.attention.sliding_window"
_PATTERN_KEY = "olmo2.attention.sliding_window_pattern"
_NORMS: Mapping[str, str] = {
    "attention_output_norm": "layers.{layer}.post_attention_layernorm",
    "mlp_output_norm": "layers.{layer}.post_feedforward_layernorm",
    "q_norm": "layers.{layer}.self_attn.q_norm",
    "k_norm": "layers.{layer}.self_attn.k_norm",
    "final_norm": "norm",
}


def read_olmo2(fields: Fields) -> ModelSpec:
    return _read(fields, _traits(fields, "olmo2"))


def read_olmo3(fields: Fields) -> ModelSpec:
    _check_bases(fields)
    rotary = read_rotary_by_kind(fields, {FULL: _THETA, SLIDING: _THETA}, {SLIDING: "rope_theta"})
    spec = _read(fields.overlaid(_NO_ROTARY), _traits(fields, "olmo3"))
    usual = [SLIDING if (number + 1) % _PATTERN else FULL for number in range(spec.num_layers)]
    window = fields.optional_integer("sliding_window", 4096)
    windows = {FULL: None, SLIDING: window}
    layers = tuple(
        replace(
            layer,
            attention=replace(layer.attention, rotary=rotary[kind], window=windows[kind]),
        )
        for layer, kind in zip(
            spec.layers, layer_kinds(fields, spec.num_layers, usual), strict=True
        )
    )
    return replace(spec, layers=layers)


def _check_bases(fields: Fields) -> None:
    """Raises UnsupportedError for flat parameters that do not say which kind of layer they are for.
    The models were trained with them in all layers, but Transformers applies them to some or none.
    """
    nested = fields.config.get("rope_parameters")
    kinds = nested if isinstance(nested, Mapping) else {}
    sliding = kinds.get(SLIDING)
    is_named = isinstance(sliding, Mapping) and "rope_theta" in sliding
    theta = fields.config.get("rope_theta", _THETA)
    is_flat = bool(kinds) and FULL not in kinds and SLIDING not in kinds
    if is_flat or (theta != _THETA and not is_named):
        raise UnsupportedError(
            f"{fields.where} does not say which layers have these rotary positions",
            seen=f"rope_parameters {shown(nested)}" if is_flat else f"rope_theta {shown(theta)}",
            remedy=f"Give rope_parameters an object {FULL!r} and an object {SLIDING!r}, each with "
            "its rope_theta.",
        )


def _traits(fields: Fields, family: str) -> FamilyTraits:
    bias = fields.flag("attention_bias", False)
    return FamilyTraits(
        family=family, qkv_bias=bias, attention_out_bias=bias, default_norm_eps=1e-5
    )


def _read(fields: Fields, traits: FamilyTraits) -> ModelSpec:
    spec = read_gated_rotary(fields, traits)
    return replace(spec, layers=tuple(_post_normed(layer) for layer in spec.layers))


def _post_normed(layer: LayerSpec) -> LayerSpec:
    norm = layer.norms.attention
    return replace(
        layer,
        attention=replace(layer.attention, norms_span_heads=True),
        norms=Norms(attention_output=norm, mlp_output=norm, q=norm, k=norm),
    )


def _config_from_gguf(fields: Fields, config: Mapping[str, object]) -> dict[str, object]:
    """Rotates whole heads. A file with a window is OLMo 3; its window layers are rotated without
    the scaling of the other layers."""
    check_whole_turns(fields, "olmo2", config)
    window = fields.integer(_WINDOW_KEY, 0, minimum=0)
    if not window:
        return {}
    num_layers = config["num_hidden_layers"]
    assert isinstance(num_layers, int)
    plain = {"rope_type": "default", "rope_theta": config["rope_theta"]}
    scaling = config.get("rope_scaling")
    assert isinstance(scaling, dict | None)
    return {
        "model_type": "olmo3",
        "architectures": ["Olmo3ForCausalLM"],
        "sliding_window": window,
        "layer_types": _kinds_from_gguf(fields, num_layers),
        "rope_scaling": None,
        "rope_parameters": {FULL: {**plain, **(scaling or {})}, SLIDING: plain},
    }


def _kinds_from_gguf(fields: Fields, num_layers: int) -> list[str]:
    """Returns each layer's kind, from a list of all layers or from the interval of those without a
    window."""
    pattern = fields.config.get(_PATTERN_KEY)
    if isinstance(pattern, list):
        if len(pattern) != num_layers or not all(type(one) is bool for one in pattern):
            raise fields.wrong(_PATTERN_KEY, f"true or false for each of {num_layers} layers")
        return [SLIDING if has_window else FULL for has_window in pattern]
    every = fields.integer(_PATTERN_KEY, _PATTERN)
    return [SLIDING if (number + 1) % every else FULL for number in range(num_layers)]


def _gguf_from_spec(spec: ModelSpec) -> Metadata:
    windows = [layer.attention.window for layer in spec.layers]
    widest = max((window for window in windows if window is not None), default=0)
    if not widest:
        return {}
    return {
        _WINDOW_KEY: np.uint32(widest),
        _PATTERN_KEY: np.array([window is not None for window in windows]),
    }


OLMO2 = Family(
    model_type="olmo2",
    read_spec=read_olmo2,
    prefixes=gated_rotary.PREFIXES,
    linears=gated_rotary.LINEARS,
    norms=_NORMS,
    embedding=gated_rotary.EMBEDDING,
    ignorable=gated_rotary.IGNORABLE,
    config_fields=gated_rotary.CONFIG_FIELDS,
    gguf=GGUFRows(
        architecture="olmo2",
        class_name="Olmo2ForCausalLM",
        keys=PLAIN_KEYS,
        norms={
            "q_norm": "attn_q_norm",
            "k_norm": "attn_k_norm",
            "attention_output_norm": "post_attention_norm",
            "mlp_output_norm": "post_ffw_norm",
        },
        takes_bias=False,
        output="own",
        more_config=_config_from_gguf,
        more_metadata=_gguf_from_spec,
    ),
)
OLMO3 = replace(
    OLMO2,
    model_type="olmo3",
    read_spec=read_olmo3,
    config_fields={**gated_rotary.CONFIG_FIELDS, "layer_types": "layer_types"},
)
