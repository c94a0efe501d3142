"""Mistral (arXiv 2310.06825): Llama's layer, a sliding window in every layer, no biases."""

from paredown.models.families import gated_rotary
from paredown.models.families.family import Family
from paredown.models.families.fields import Fields
from paredown.models.families.gated_rotary import FamilyTraits, read_gated_rotary
from paredown.models.families.gguf_rows import GGUFRows
from paredown.spec.model import ModelSpec


def read_spec(fields: Fields) -> ModelSpec:
    variant = FamilyTraits(
        family="mistral",
        default_num_kv_heads=8,
        sliding_window=fields.optional_integer("sliding_window", 4096),
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
    config_fields=gated_rotary.CONFIG_FIELDS,
    gguf=GGUFRows(
        architecture="llama",
        class_name="LlamaForCausalLM",
        is_paired=True,
    ),
)
