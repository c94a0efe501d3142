"""Qwen1.5-MoE and Qwen2-MoE (arXiv 2407.10671): Qwen2's attention, and experts with a shared expert
for every token."""

from collections.abc import Mapping

from paredown.models.families import expert_fields, gated_rotary
from paredown.models.families.expert_fields import experts_from_gguf, read_qwen_experts
from paredown.models.families.family import Family, LinearModule
from paredown.models.families.fields import Fields
from paredown.models.families.gated_rotary import FamilyTraits, read_gated_rotary
from paredown.models.families.gguf_rows import PLAIN_KEYS, GGUFRows, check_whole_turns
from paredown.spec.model import ModelSpec

_SHARED = "layers.{layer}.mlp.shared_expert"


def read_spec(fields: Fields) -> ModelSpec:
    # Transformers gives the window to alternating layers, which no published model asks for.
    fields.must_be("use_sliding_window", False)
    fields.pass_over("sliding_window", "max_window_layers")
    variant = FamilyTraits(
        family="qwen2_moe",
        qkv_bias=fields.flag("qkv_bias", True),
        default_num_kv_heads=16,
        experts=read_qwen_experts(fields, fields.integer("shared_expert_intermediate_size")),
    )
    return read_gated_rotary(fields, variant)


def _config_from_gguf(fields: Fields, config: Mapping[str, object]) -> dict[str, object]:
    """llama.cpp takes the router's weights as they are."""
    check_whole_turns(fields, "qwen2moe", config)
    size = fields.integer("qwen2moe.expert_shared_feed_forward_length")
    return {
        **experts_from_gguf(fields, "qwen2moe"),
        "shared_expert_intermediate_size": size,
        "norm_topk_prob": False,
    }


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
    gguf=GGUFRows(
        architecture="qwen2moe",
        class_name="Qwen2MoeForCausalLM",
        keys=PLAIN_KEYS,
        told_by={"qkv_bias": "q"},
        output="own",
        has_experts=True,
        more_config=_config_from_gguf,
    ),
    routers={
        "router": expert_fields.ROUTER,
        "shared_gate": "layers.{layer}.mlp.shared_expert_gate",
    },
)
