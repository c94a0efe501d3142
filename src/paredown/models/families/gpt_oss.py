"""gpt-oss (arXiv 2508.10925): every layer has experts, and every other one a window."""

from paredown.models.families import gated_rotary
from paredown.models.families.expert_fields import read_num_experts
from paredown.models.families.family import Family
from paredown.models.families.fields import Fields
from paredown.models.families.gated_rotary import with_full_layers
from paredown.models.families.gemma2 import every_other
from paredown.spec.attention import Attention
from paredown.spec.experts import Experts
from paredown.spec.layer import LayerSpec
from paredown.spec.model import Embedding, ModelSpec, Output
from paredown.spec.norm import Norm, Norms
from paredown.spec.rotary import Rotary


def read_spec(fields: Fields) -> ModelSpec:
    num, num_per_token = read_num_experts(fields, "num_local_experts")
    num_layers = fields.num_layers("num_hidden_layers")
    bias = fields.flag("attention_bias", True)
    norm = Norm(kind="rms", eps=fields.number("rms_norm_eps", 1e-5))
    layer = LayerSpec(
        attention=Attention(
            num_heads=fields.integer("num_attention_heads"),
            num_kv_heads=fields.integer("num_key_value_heads", 8),
            head_dim=fields.integer("head_dim", 64),
            rotary=Rotary(theta=fields.number("rope_theta", 150000.0)),
            window=fields.optional_integer("sliding_window", 128),
            qkv_bias=bias,
            out_bias=bias,
        ),
        mlp=Experts(
            num=num,
            num_per_token=num_per_token,
            size=fields.integer("intermediate_size"),
            is_normalized=True,
            is_gated=True,
            activation=fields.activation("hidden_act", "silu"),
        ),
        norms=Norms(attention=norm, mlp=norm),
    )
    return ModelSpec(
        family="gpt_oss",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=fields.integer("hidden_size"),
        max_positions=fields.integer("max_position_embeddings", 131072),
        embedding=Embedding(),
        layers=with_full_layers(layer, num_layers, every_other(fields, num_layers)),
        final_norm=norm,
        output=Output(is_tied=fields.flag("tie_word_embeddings", False)),
    )


GPT_OSS = Family(
    model_type="gpt_oss",
    read_spec=read_spec,
    prefixes=gated_rotary.PREFIXES,
    linears={},
    norms=gated_rotary.NORMS,
    embedding=gated_rotary.EMBEDDING,
    left_out="biases of experts and routers, sinks of heads, gates that are cut off, YaRN",
)
