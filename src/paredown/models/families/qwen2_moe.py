"""Qwen1.5-MoE and Qwen2-MoE (arXiv 2407.10671): Qwen2's attention, experts, and beside them an
expert that every token passes."""

from paredown.models.families import expert_fields, gated_rotary
from paredown.models.families.expert_fields import read_qwen_experts
from paredown.models.families.family import Family, LinearModule
from paredown.models.families.fields import Fields
from paredown.models.families.gated_rotary import FamilyTraits, read_gated_rotary
from paredown.spec.model import ModelSpec

_SHARED = "layers.{layer}.mlp.shared_expert"


def read_spec(fields: Fields) -> ModelSpec:
    # Transformers gives the window to layers in turn, which no published model asks for.
    fields.must_be("use_sliding_window", False)
    fields.pass_over("sliding_window", "max_window_layers")
    variant = FamilyTraits(
        family="qwen2_moe",
        qkv_bias=fields.flag("qkv_bias", True),
        default_num_kv_heads=16,
        experts=read_qwen_experts(fields, fields.integer("shared_expert_intermediate_size")),
    )
    return read_gated_rotary(fields, variant)


QWEN2_MOE = Family(
    model_type="qwen2_moe",
    read_spec=read_spec,
    prefixes=gated_rotary.PREFIXES,
    linears={
        **gated_rotary.LINEARS,
        **expert_fields.LINEARS,
        "shared.gate": LinearModule(module=f"{_SHARED}.gate_proj"),
        "shared.up": LinearModule(module=f"{_SHARED}.up_proj"),
        "shared.down": LinearModule(module=f"{_SHARED}.down_proj"),
    },
    norms=gated_rotary.NORMS,
    embedding=gated_rotary.EMBEDDING,
    ignorable=gated_rotary.IGNORABLE,
    config_fields={
        **gated_rotary.CONFIG_FIELDS,
        **expert_fields.CONFIG_FIELDS,
        "shared_size": "shared_expert_intermediate_size",
    },
    routers={
        "router": expert_fields.ROUTER,
        "shared_gate": "layers.{layer}.mlp.shared_expert_gate",
    },
)
