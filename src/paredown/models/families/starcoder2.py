"""StarCoder2 (arXiv 2402.19173): Llama's attention with LayerNorm, an MLP without a gate, biases
everywhere and, in some sizes, a window in every layer."""

from paredown.models.families import gated_rotary
from paredown.models.families.family import Family, LinearModule
from paredown.models.families.fields import Fields, even_heads
from paredown.models.families.rotary import read_rotary
from paredown.spec.attention import Attention
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import Embedding, ModelSpec, Output
from paredown.spec.norm import Norm, Norms


def read_spec(fields: Fields) -> ModelSpec:
    hidden_size = fields.integer("hidden_size")
    num_heads = fields.integer("num_attention_heads")
    bias = fields.flag("use_bias", True)
    norm = Norm(kind="layer", eps=fields.number("norm_epsilon", 1e-5))
    layer = LayerSpec(
        attention=Attention(
            num_heads=num_heads,
            num_kv_heads=fields.integer("num_key_value_heads", 2),
            head_dim=fields.optional_integer("head_dim") or even_heads(hidden_size, num_heads),
            rotary=read_rotary(fields),
            window=fields.optional_integer("sliding_window"),
            qkv_bias=bias,
            out_bias=bias,
        ),
        mlp=Mlp(
            size=fields.integer("intermediate_size"),
            is_gated=False,
            activation=fields.activation("hidden_act", "gelu_pytorch_tanh"),
            bias=bias,
        ),
        norms=Norms(attention=norm, mlp=norm),
    )
    return ModelSpec(
        family="starcoder2",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden_size,
        max_positions=fields.integer("max_position_embeddings", 4096),
        embedding=Embedding(),
        layers=(layer,) * fields.num_layers("num_hidden_layers"),
        final_norm=norm,
        output=Output(is_tied=fields.flag("tie_word_embeddings", True)),
    )


STARCODER2 = Family(
    model_type="starcoder2",
    read_spec=read_spec,
    prefixes=gated_rotary.PREFIXES,
    linears={
        **gated_rotary.ATTENTION,
        "up": LinearModule(module="layers.{layer}.mlp.c_fc"),
        "down": LinearModule(module="layers.{layer}.mlp.c_proj"),
    },
    norms=gated_rotary.NORMS,
    embedding=gated_rotary.EMBEDDING,
    # The first training code's name: "gelu", beside a `hidden_act` that says which one.
    noted=("activation_function",),
    ignorable=gated_rotary.IGNORABLE,
    config_fields=gated_rotary.CONFIG_FIELDS,
)
