"""OLMo 2 and 3 (arXiv 2501.00656): norms behind attention and MLP, and over all heads of query and
key. OLMo 3 has a window in three of four layers, whose rotary positions are never scaled."""

from collections.abc import Mapping
from dataclasses import replace

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
from paredown.models.families.rotary import read_rotary_by_kind
from paredown.spec.layer import LayerSpec
from paredown.spec.model import ModelSpec
from paredown.spec.norm import Norms

_PATTERN = 4
_THETA = 500_000.0
# In the place of what is read for each kind of layer by itself.
_NO_ROTARY = {"rope_theta": _THETA, "rope_scaling": None, "rope_parameters": None}
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


OLMO2 = Family(
    model_type="olmo2",
    read_spec=read_olmo2,
    prefixes=gated_rotary.PREFIXES,
    linears=gated_rotary.LINEARS,
    norms=_NORMS,
    embedding=gated_rotary.EMBEDDING,
    ignorable=gated_rotary.IGNORABLE,
    config_fields=gated_rotary.CONFIG_FIELDS,
)
OLMO3 = replace(
    OLMO2,
    model_type="olmo3",
    read_spec=read_olmo3,
    config_fields={**gated_rotary.CONFIG_FIELDS, "layer_types": "layer_types"},
)
