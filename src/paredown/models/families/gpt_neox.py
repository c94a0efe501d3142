"""GPT-NeoX and Pythia (arXiv 2204.06745, 2304.01373): parallel attention and MLP, a part of each
head rotated, and one module for query, key and value with its rows head by head."""

from collections.abc import Mapping

from paredown.errors import CheckpointError
from paredown.models.families.family import Family, LinearModule, fused_modules
from paredown.models.families.fields import Fields, even_heads
from paredown.models.families.gguf_rows import (
    LAYER_NORM_KEYS,
    PLAIN_KEYS,
    GGUFRows,
    Metadata,
    turned_share,
)
from paredown.models.families.rotary import DEFAULT_THETA, read_rotary
from paredown.spec.attention import Attention
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import Embedding, ModelSpec, Output
from paredown.spec.norm import Norm, Norms
from paredown.spec.roles import QKV_ROLES
from paredown.spec.rotary import Rotary

_SHARE = 0.25
_PARALLEL_KEY = "gptneox.use_parallel_residual"
_KEYS: Mapping[str, str] = {
    name: key
    for name, key in {**PLAIN_KEYS, **LAYER_NORM_KEYS}.items()
    if name not in ("num_key_value_heads", "rms_norm_eps")
}


def read_spec(fields: Fields) -> ModelSpec:
    hidden_size = fields.integer("hidden_size")
    num_heads = fields.integer("num_attention_heads")
    bias = fields.flag("attention_bias", True)
    norm = Norm(kind="layer", eps=fields.number("layer_norm_eps", 1e-5))
    is_parallel = fields.flag("use_parallel_residual", True)
    layer = LayerSpec(
        attention=Attention(
            num_heads=num_heads,
            num_kv_heads=num_heads,
            head_dim=even_heads(hidden_size, num_heads),
            rotary=_read_rotary(fields),
            qkv_bias=bias,
            out_bias=bias,
        ),
        mlp=Mlp(
            size=fields.integer("intermediate_size"),
            is_gated=False,
            activation=fields.activation("hidden_act", "gelu"),
            bias=True,
        ),
        norms=Norms(attention=norm, mlp=norm),
        residual="parallel" if is_parallel else "sequential",
    )
    return ModelSpec(
        family="gpt_neox",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden_size,
        max_positions=fields.integer("max_position_embeddings", 2048),
        embedding=Embedding(),
        layers=(layer,) * fields.num_layers("num_hidden_layers"),
        final_norm=norm,
        output=Output(is_tied=fields.flag("tie_word_embeddings", False)),
    )


def _read_rotary(fields: Fields) -> Rotary:
    """Reads `rotary_pct` and `rotary_emb_base`, or their names in other families."""
    parameters = fields.config.get("rope_parameters")
    share = fields.number("rotary_pct", _SHARE)
    if isinstance(parameters, Mapping) and "partial_rotary_factor" in parameters:
        share = Fields(parameters, f"{fields.where} (rope_parameters)").number(
            "partial_rotary_factor"
        )
    if share > 1:
        raise CheckpointError(
            f"{fields.where}: more of a head is rotated than there is",
            seen=f"a share of {share}",
            remedy="Correct rotary_pct, or download the checkpoint again.",
        )
    return read_rotary(fields, fields.number("rotary_emb_base", DEFAULT_THETA), share)


def _config_from_gguf(fields: Fields, config: Mapping[str, object]) -> dict[str, object]:
    """Adds llama.cpp's conventions: biases everywhere, and an approximation of the same GELU."""
    fields.must_be("gptneox.attention.head_count_kv", config["num_attention_heads"])
    if _PARALLEL_KEY not in fields.config:
        raise fields.missing(_PARALLEL_KEY)
    return {
        "hidden_act": "gelu",
        "attention_bias": True,
        "rotary_pct": turned_share(fields, "gptneox", config),
        "use_parallel_residual": fields.flag(_PARALLEL_KEY, True),
    }


def _gguf_from_spec(spec: ModelSpec) -> Metadata:
    return {_PARALLEL_KEY: spec.layers[0].is_parallel}


GPT_NEOX = Family(
    model_type="gpt_neox",
    read_spec=read_spec,
    prefixes=("gpt_neox.", ""),
    linears={
        **fused_modules("layers.{layer}.attention.query_key_value", QKV_ROLES, by_head=True),
        "o": LinearModule(module="layers.{layer}.attention.dense"),
        "up": LinearModule(module="layers.{layer}.mlp.dense_h_to_4h"),
        "down": LinearModule(module="layers.{layer}.mlp.dense_4h_to_h"),
    },
    norms={
        "attention_norm": "layers.{layer}.input_layernorm",
        "mlp_norm": "layers.{layer}.post_attention_layernorm",
        "final_norm": "final_layer_norm",
    },
    embedding="embed_in",
    output="embed_out",
    output_aliases=("lm_head",),
    config_fields={
        "vocab_size": "vocab_size",
        "hidden_size": "hidden_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "mlp_size": "intermediate_size",
        "max_positions": "max_position_embeddings",
        "is_tied": "tie_word_embeddings",
    },
    gguf=GGUFRows(
        architecture="gptneox",
        class_name="GPTNeoXForCausalLM",
        keys=_KEYS,
        linears={
            **dict.fromkeys(QKV_ROLES, "attn_qkv"),
            "o": "attn_output",
            "up": "ffn_up",
            "down": "ffn_down",
        },
        output="own",
        more_config=_config_from_gguf,
        more_metadata=_gguf_from_spec,
    ),
    # The causal mask and rotary frequencies, which older versions of Transformers saved as buffers.
    ignorable=(r"(gpt_neox\.)?layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)",),
)
