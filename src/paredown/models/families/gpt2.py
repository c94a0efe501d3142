"""GPT-2: learned positions, LayerNorm, one fused and transposed module for query, key and value."""

from paredown.models.families.family import Family, LinearModule, fused_modules
from paredown.models.families.fields import Fields, even_heads
from paredown.spec.attention import Attention
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import Embedding, LearnedPositions, ModelSpec, Output
from paredown.spec.norm import Norm, Norms
from paredown.spec.roles import QKV_ROLES


def read_spec(fields: Fields) -> ModelSpec:
    fields.must_be("scale_attn_weights", True)
    fields.must_be("scale_attn_by_inverse_layer_idx", False)
    fields.must_be("add_cross_attention", False)
    hidden_size = fields.integer("n_embd")
    num_heads = fields.integer("n_head")
    norm = Norm(kind="layer", eps=fields.number("layer_norm_epsilon", 1e-5))
    layer = LayerSpec(
        attention=Attention(
            num_heads=num_heads,
            num_kv_heads=num_heads,
            head_dim=even_heads(hidden_size, num_heads),
            rotary=None,
            qkv_bias=True,
            out_bias=True,
        ),
        mlp=Mlp(
            size=fields.optional_integer("n_inner") or 4 * hidden_size,
            is_gated=False,
            activation=fields.activation("activation_function", "gelu_new"),
            bias=True,
        ),
        norms=Norms(attention=norm, mlp=norm),
    )
    return ModelSpec(
        family="gpt2",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden_size,
        max_positions=fields.integer("n_positions"),
        embedding=Embedding(positions=LearnedPositions()),
        layers=(layer,) * fields.num_layers("n_layer"),
        final_norm=norm,
        output=Output(is_tied=fields.flag("tie_word_embeddings", True)),
    )


GPT2 = Family(
    model_type="gpt2",
    read_spec=read_spec,
    prefixes=("transformer.", ""),
    linears={
        **fused_modules("h.{layer}.attn.c_attn", QKV_ROLES, transposed=True),
        "o": LinearModule(module="h.{layer}.attn.c_proj", transposed=True),
        "up": LinearModule(module="h.{layer}.mlp.c_fc", transposed=True),
        "down": LinearModule(module="h.{layer}.mlp.c_proj", transposed=True),
    },
    norms={
        "attention_norm": "h.{layer}.ln_1",
        "mlp_norm": "h.{layer}.ln_2",
        "final_norm": "ln_f",
    },
    embedding="wte",
    position_embedding="wpe",
    config_fields={
        "vocab_size": "vocab_size",
        "hidden_size": "n_embd",
        "num_layers": "n_layer",
        "num_heads": "n_head",
        "mlp_size": "n_inner",
        "max_positions": "n_positions",
        "is_tied": "tie_word_embeddings",
    },
    # The causal mask, saved as buffers by Transformers before 4.32.
    ignorable=(r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)",),
)
