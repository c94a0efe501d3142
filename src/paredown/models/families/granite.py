"""Granite 3 and 4, dense: Llama's layer with four multipliers, for the embedding, the attention
scores, the residual and the logits."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from paredown.models.families.fields import Fields
from paredown.models.families.gated_rotary import FamilyTraits, read_gated_rotary
from paredown.models.families.gguf_rows import GGUFRows, Metadata
from paredown.models.families.llama import LLAMA
from paredown.spec.model import Embedding, ModelSpec

# Field of config.json -> metadata key. llama.cpp divides the logits as Transformers does.
_SCALARS: Mapping[str, str] = {
    "attention_multiplier": "granite.attention.scale",
    "residual_multiplier": "granite.residual_scale",
    "embedding_multiplier": "granite.embedding_scale",
    "logits_scaling": "granite.logit_scale",
}


def read_granite(fields: Fields) -> ModelSpec:
    attention_bias = fields.flag("attention_bias", False)
    traits = FamilyTraits(
        family="granite",
        qkv_bias=attention_bias,
        attention_out_bias=attention_bias,
        mlp_bias=fields.flag("mlp_bias", False),
    )
    spec = read_gated_rotary(fields, traits)
    scale = fields.number("attention_multiplier", 1.0)
    added = fields.number("residual_multiplier", 1.0)
    layers = tuple(
        replace(layer, attention=replace(layer.attention, scale=scale), residual_multiplier=added)
        for layer in spec.layers
    )
    return replace(
        spec,
        layers=layers,
        embedding=Embedding(multiplier=fields.number("embedding_multiplier", 1.0)),
        output=replace(spec.present_output, multiplier=1 / fields.number("logits_scaling", 1.0)),
    )


def _config_from_gguf(fields: Fields, _config: Mapping[str, object]) -> dict[str, object]:
    return {name: fields.number(key, 1.0) for name, key in _SCALARS.items()}


def _gguf_from_spec(spec: ModelSpec) -> Metadata:
    layer = spec.layers[0]
    values = {
        "attention_multiplier": layer.attention.score_scale,
        "residual_multiplier": layer.residual_multiplier,
        "embedding_multiplier": spec.embedding.multiplier,
        "logits_scaling": 1 / spec.present_output.multiplier,
    }
    return {key: np.float32(values[name]) for name, key in _SCALARS.items()}


GRANITE = replace(
    LLAMA,
    model_type="granite",
    read_spec=read_granite,
    gguf=GGUFRows(
        architecture="granite",
        class_name="GraniteForCausalLM",
        told_by={"attention_bias": "q", "mlp_bias": "up"},
        is_paired=True,
        more_config=_config_from_gguf,
        more_metadata=_gguf_from_spec,
    ),
)
