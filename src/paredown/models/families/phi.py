"""Phi-1, 1.5 and 2 (arXiv 2306.11644): parallel attention and MLP after one norm, a part of each
head rotated, and biases everywhere, on the output layer too."""

from collections.abc import Mapping

from paredown.models.families.family import Family, LinearModule
from paredown.models.families.fields import Fields, even_heads
from paredown.models.families.gguf_rows import (
    LAYER_NORM_KEYS,
    PLAIN_KEYS,
    GGUFRows,
    turned_share,
)
from paredown.models.families.rotary import read_rotary, rotary_share
from paredown.spec.attention import Attention
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import Embedding, ModelSpec, Output
from paredown.spec.norm import Norm, Norms

_SHARE = 0.5
_KEYS: Mapping[str, str] = {
    name: key for name, key in {**PLAIN_KEYS, **LAYER_NORM_KEYS}.items() if name != "rms_norm_eps"
}


def read_spec(fields: Fields) -> ModelSpec:
    fields.must_be_off("qk_layernorm")
    hidden_size = fields.integer("hidden_size")
    num_heads = fields.integer("num_attention_heads")
    norm = Norm(kind="layer", eps=fields.number("layer_norm_eps", 1e-5))
    layer = LayerSpec(
        attention=Attention(
            num_heads=num_heads,
            num_kv_heads=fields.optional_integer("num_key_value_heads") or num_heads,
            head_dim=even_heads(hidden_size, num_heads),
            rotary=read_rotary(fields, share=rotary_share(fields, _SHARE)),
            qkv_bias=True,
            out_bias=True,
        ),
        mlp=Mlp(
            size=fields.integer("intermediate_size"),
            is_gated=False,
            activation=fields.activation("hidden_act", "gelu_new"),
            bias=True,
        ),
        norms=Norms(attention=norm),
        residual="parallel_one_norm",
    )
    return ModelSpec(
        family="phi",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden_size,
        max_positions=fields.integer("max_position_embeddings", 2048),
        embedding=Embedding(),
        layers=(layer,) * fields.num_layers("num_hidden_layers"),
        final_norm=norm,
        output=Output(is_tied=fields.flag("tie_word_embeddings", False), has_bias=True),
    )


def _config_from_gguf(fields: Fields, config: Mapping[str, object]) -> dict[str, object]:
    share = turned_share(fields, "phi2", config)
    return {"hidden_act": "gelu_new", "partial_rotary_factor": share}


PHI = Family(
    model_type="phi",
    read_spec=read_spec,
    prefixes=("model.", ""),
    linears={
        "q": LinearModule(module="layers.{layer}.self_attn.q_proj"),
        "k": LinearModule(module="layers.{layer}.self_attn.k_proj"),
        "v": LinearModule(module="layers.{layer}.self_attn.v_proj"),
        "o": LinearModule(module="layers.{layer}.self_attn.dense"),
        "up": LinearModule(module="layers.{layer}.mlp.fc1"),
        "down": LinearModule(module="layers.{layer}.mlp.fc2"),
    },
    norms={"attention_norm": "layers.{layer}.input_layernorm", "final_norm": "final_layernorm"},
    embedding="embed_tokens",
    gguf=GGUFRows(
        architecture="phi2",
        class_name="PhiForCausalLM",
        keys=_KEYS,
        output="own",
        more_config=_config_from_gguf,
    ),
    config_fields={
        "vocab_size": "vocab_size",
        "hidden_size": "hidden_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "num_kv_heads": "num_key_value_heads",
        "mlp_size": "intermediate_size",
        "max_positions": "max_position_embeddings",
        "is_tied": "tie_word_embeddings",
    },
)
