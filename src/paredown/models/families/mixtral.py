"""Mixtral (arXiv 2401.04088): Mistral's layer with two of eight experts for each token."""

from collections.abc import Mapping

from paredown.models.families import gated_rotary
from paredown.models.families.expert_fields import ExpertLayers, read_num_experts
from paredown.models.families.family import Family, LinearModule
from paredown.models.families.fields import Fields
from paredown.models.families.gated_rotary import FamilyTraits, read_gated_rotary
from paredown.models.families.gguf_rows import GGUFRows
from paredown.spec.experts import Experts
from paredown.spec.model import ModelSpec

_BLOCK = "layers.{layer}.block_sparse_moe"


def read_spec(fields: Fields) -> ModelSpec:
    num, num_per_token = read_num_experts(fields, "num_local_experts")
    variant = FamilyTraits(
        family="mixtral",
        default_num_kv_heads=8,
        default_norm_eps=1e-5,
        default_theta=1e6,
        sliding_window=fields.optional_integer("sliding_window"),
        experts=ExpertLayers(
            experts=Experts(
                num=num,
                num_per_token=num_per_token,
                size=fields.integer("intermediate_size"),
                is_normalized=True,
                is_gated=True,
                activation=fields.activation("hidden_act", "silu"),
            )
        ),
    )
    return read_gated_rotary(fields, variant)


def _config_from_gguf(fields: Fields, config: Mapping[str, object]) -> dict[str, object]:
    """Reads the counts of experts. Their size is the MLP's, which a file may repeat."""
    fields.must_be("llama.expert_feed_forward_length", config["intermediate_size"])
    return {
        "num_local_experts": fields.integer("llama.expert_count"),
        "num_experts_per_tok": fields.integer("llama.expert_used_count"),
    }


MIXTRAL = Family(
    model_type="mixtral",
    read_spec=read_spec,
    prefixes=gated_rotary.PREFIXES,
    linears={
        **gated_rotary.ATTENTION,
        "experts.gate": LinearModule(module=f"{_BLOCK}.experts.{{expert}}.w1"),
        "experts.up": LinearModule(module=f"{_BLOCK}.experts.{{expert}}.w3"),
        "experts.down": LinearModule(module=f"{_BLOCK}.experts.{{expert}}.w2"),
    },
    norms=gated_rotary.NORMS,
    embedding=gated_rotary.EMBEDDING,
    ignorable=gated_rotary.IGNORABLE,
    config_fields={
        **gated_rotary.CONFIG_FIELDS,
        "num_experts": "num_local_experts",
        "num_experts_per_token": "num_experts_per_tok",
        "expert_size": "intermediate_size",
    },
    gguf=GGUFRows(
        architecture="llama",
        class_name="MixtralForCausalLM",
        is_paired=True,
        takes_bias=False,
        has_experts=True,
        more_config=_config_from_gguf,
    ),
    routers={"router": f"{_BLOCK}.gate"},
)
