"""Mistral (arXiv 2310.06825) and Ministral: Llama's layer without biases, with a sliding window in
every layer or in those that `layer_types` names."""

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
from paredown.models.families.gguf_rows import GGUFRows
from paredown.spec.model import ModelSpec


def read_spec(fields: Fields) -> ModelSpec:
    window = fields.optional_integer("sliding_window", 4096)
    num_layers = fields.num_layers("num_hidden_layers")
    kinds = layer_kinds(fields, num_layers, [FULL if window is None else SLIDING] * num_layers)
    variant = FamilyTraits(
        family=fields.text("model_type", "mistral"),
        default_num_kv_heads=8,
        sliding_window=window,
        full_layers=tuple(number for number, kind in enumerate(kinds) if kind == FULL),
    )
    return read_gated_rotary(fields, variant)


MISTRAL = Family(
    model_type="mistral",
    read_spec=read_spec,
    prefixes=gated_rotary.PREFIXES,
    linears=gated_rotary.LINEARS,
    norms=gated_rotary.NORMS,
    embedding=gated_rotary.EMBEDDING,
    ignorable=gated_rotary.IGNORABLE,
    config_fields={**gated_rotary.CONFIG_FIELDS, "layer_types": "layer_types"},
    gguf=GGUFRows(
        architecture="llama",
        class_name="LlamaForCausalLM",
        is_paired=True,
    ),
)
MINISTRAL = replace(MISTRAL, model_type="ministral")
