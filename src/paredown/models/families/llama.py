"""Llama 1 to 3 (arXiv 2302.13971, 2407.21783), and whatever exports itself as `llama`."""

from paredown.models.families import gated_rotary
from paredown.models.families.family import Family
from paredown.models.families.fields import Fields
from paredown.models.families.gated_rotary import FamilyTraits, read_gated_rotary
from paredown.models.families.gguf_rows import GGUFRows
from paredown.spec.model import ModelSpec


def read_spec(fields: Fields) -> ModelSpec:
    attention_bias = fields.flag("attention_bias", False)
    variant = FamilyTraits(
        family="llama",
        qkv_bias=attention_bias,
        attention_out_bias=attention_bias,
        mlp_bias=fields.flag("mlp_bias", False),
    )
    return read_gated_rotary(fields, variant)


LLAMA = Family(
    model_type="llama",
    read_spec=read_spec,
    prefixes=gated_rotary.PREFIXES,
    linears=gated_rotary.LINEARS,
    norms=gated_rotary.NORMS,
    embedding=gated_rotary.EMBEDDING,
    ignorable=gated_rotary.IGNORABLE,
    config_fields=gated_rotary.CONFIG_FIELDS,
    gguf=GGUFRows(
        architecture="llama",
        class_name="LlamaForCausalLM",
        told_by={"attention_bias": "q", "mlp_bias": "up"},
        is_paired=True,
    ),
)
