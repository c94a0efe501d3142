"""Qwen3 (arXiv 2505.09388): Llama's layer with an RMSNorm on each query and key head."""

from paredown.models.families import gated_rotary, gguf_rows
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
    attention_bias = fields.flag("attention_bias", False)
    window, full_layers = read_layered_window(fields)
    variant = FamilyTraits(
        family="qwen3",
        qkv_bias=attention_bias,
        attention_out_bias=attention_bias,
        qk_norm=True,
        default_num_kv_heads=32,
        default_head_dim=128,
        sliding_window=window,
        full_layers=full_layers,
    )
    return read_gated_rotary(fields, variant)


QWEN3 = Family(
    model_type="qwen3",
    read_spec=read_spec,
    prefixes=gated_rotary.PREFIXES,
    linears=gated_rotary.LINEARS,
    norms={
        **gated_rotary.NORMS,
        "q_norm": "layers.{layer}.self_attn.q_norm",
        "k_norm": "layers.{layer}.self_attn.k_norm",
    },
    embedding=gated_rotary.EMBEDDING,
    ignorable=gated_rotary.IGNORABLE,
    config_fields={**gated_rotary.CONFIG_FIELDS, "layer_types": "layer_types"},
    gguf=GGUFRows(
        architecture="qwen3",
        class_name="Qwen3ForCausalLM",
        norms={**gguf_rows.NORMS, "q_norm": "attn_q_norm", "k_norm": "attn_k_norm"},
        told_by={"attention_bias": "q"},
        takes_bias=False,
    ),
)
