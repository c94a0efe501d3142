"""Qwen3-MoE (arXiv 2505.09388): Qwen3's attention, and experts without a shared one."""

from collections.abc import Mapping

from paredown.models.families import expert_fields, gated_rotary, gguf_rows
from paredown.models.families.expert_fields import experts_from_gguf, read_qwen_experts
from paredown.models.families.family import Family
from paredown.models.families.fields import Fields
from paredown.models.families.gated_rotary import FamilyTraits, read_gated_rotary
from paredown.models.families.gguf_rows import GGUFRows
from paredown.models.families.qwen3 import QWEN3
from paredown.spec.model import ModelSpec


def read_spec(fields: Fields) -> ModelSpec:
    attention_bias = fields.flag("attention_bias", False)
    window = fields.optional_integer("sliding_window", 4096)
    slides = fields.flag("use_sliding_window", False)
    variant = FamilyTraits(
        family="qwen3_moe",
        qkv_bias=attention_bias,
        attention_out_bias=attention_bias,
        qk_norm=True,
        default_num_kv_heads=4,
        sliding_window=window if slides else None,
        experts=read_qwen_experts(fields, None),
    )
    return read_gated_rotary(fields, variant)


def _config_from_gguf(fields: Fields, _config: Mapping[str, object]) -> dict[str, object]:
    """Sets `norm_topk_prob`: llama.cpp divides the router's weights by their sum."""
    return {**experts_from_gguf(fields, "qwen3moe"), "norm_topk_prob": True}


QWEN3_MOE = Family(
    model_type="qwen3_moe",
    read_spec=read_spec,
    prefixes=gated_rotary.PREFIXES,
    linears={**gated_rotary.LINEARS, **expert_fields.LINEARS},
    norms=QWEN3.norms,
    embedding=gated_rotary.EMBEDDING,
    ignorable=gated_rotary.IGNORABLE,
    config_fields={**gated_rotary.CONFIG_FIELDS, **expert_fields.CONFIG_FIELDS},
    gguf=GGUFRows(
        architecture="qwen3moe",
        class_name="Qwen3MoeForCausalLM",
        norms={**gguf_rows.NORMS, "q_norm": "attn_q_norm", "k_norm": "attn_k_norm"},
        takes_bias=False,
        has_experts=True,
        more_config=_config_from_gguf,
    ),
    routers={"router": expert_fields.ROUTER},
)
