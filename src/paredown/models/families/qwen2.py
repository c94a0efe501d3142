"""Qwen2 and 2.5 (arXiv 2407.10671): Llama's layer with biases on query, key and value."""

from paredown.models.families import gated_rotary
from paredown.models.families.family import Family
from paredown.models.families.fields import Fields
from paredown.models.families.gated_rotary import (
    FamilyTraits,
    read_gated_rotary,
    read_layered_window,
)
from paredown.models.families.gguf_rows import GGUFRows
from paredown.spec.model import ModelSpec


def read_spec(fields: Fields) -> ModelSpec:
    window, full_layers = read_layered_window(fields)
    variant = FamilyTraits(
        family="qwen2",
        qkv_bias=True,
        default_num_kv_heads=32,
        sliding_window=window,
        full_layers=full_layers,
    )
    return read_gated_rotary(fields, variant)


QWEN2 = Family(
    model_type="qwen2",
    read_spec=read_spec,
    prefixes=gated_rotary.PREFIXES,
    linears=gated_rotary.LINEARS,
    norms=gated_rotary.NORMS,
    embedding=gated_rotary.EMBEDDING,
    ignorable=gated_rotary.IGNORABLE,
    config_fields={**gated_rotary.CONFIG_FIELDS, "layer_types": "layer_types"},
    gguf=GGUFRows(
        architecture="qwen2",
        class_name="Qwen2ForCausalLM",
    ),
)
