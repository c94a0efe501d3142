"""OPT (arXiv 2205.01068), the pre-norm sizes: learned positions that start at row 2, LayerNorm,
ReLU."""

from paredown.models.families.family import Family, LinearModule
from paredown.models.families.fields import Fields, even_heads
from paredown.spec.attention import Attention
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import Embedding, LearnedPositions, ModelSpec, Output
from paredown.spec.norm import Norm, Norms

# torch.nn.LayerNorm's default, because OPT's config has no field for it.
NORM_EPS = 1e-5


def read_spec(fields: Fields) -> ModelSpec:
    fields.must_be("do_layer_norm_before", True)
    fields.must_be("_remove_final_layer_norm", False)
    fields.must_be("layer_norm_elementwise_affine", True)
    hidden_size = fields.integer("hidden_size")
    num_heads = fields.integer("num_attention_heads")
    if fields.config.get("word_embed_proj_dim") is not None:
        fields.must_be("word_embed_proj_dim", hidden_size)
    bias = fields.flag("enable_bias", True)
    norm = Norm(kind="layer", eps=NORM_EPS)
    layer = LayerSpec(
        attention=Attention(
            num_heads=num_heads,
            num_kv_heads=num_heads,
            head_dim=even_heads(hidden_size, num_heads),
            rotary=None,
            qkv_bias=bias,
            out_bias=bias,
        ),
        mlp=Mlp(
            size=fields.integer("ffn_dim"),
            is_gated=False,
            activation=fields.activation("activation_function", "relu"),
            bias=bias,
        ),
        norms=Norms(attention=norm, mlp=norm),
    )
    return ModelSpec(
        family="opt",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden_size,
        max_positions=fields.integer("max_position_embeddings"),
        embedding=Embedding(positions=LearnedPositions(offset=2)),
        layers=(layer,) * fields.num_layers("num_hidden_layers"),
        final_norm=norm,
        output=Output(is_tied=fields.flag("tie_word_embeddings", True)),
    )


OPT = Family(
    model_type="opt",
    read_spec=read_spec,
    prefixes=("model.decoder.", "decoder.", ""),
    linears={
        "q": LinearModule(module="layers.{layer}.self_attn.q_proj"),
        "k": LinearModule(module="layers.{layer}.self_attn.k_proj"),
        "v": LinearModule(module="layers.{layer}.self_attn.v_proj"),
        "o": LinearModule(module="layers.{layer}.self_attn.out_proj"),
        "up": LinearModule(module="layers.{layer}.fc1"),
        "down": LinearModule(module="layers.{layer}.fc2"),
    },
    norms={
        "attention_norm": "layers.{layer}.self_attn_layer_norm",
        "mlp_norm": "layers.{layer}.final_layer_norm",
        "final_norm": "final_layer_norm",
    },
    embedding="embed_tokens",
    position_embedding="embed_positions",
    config_fields={
        "vocab_size": "vocab_size",
        "hidden_size": "hidden_size",
        "embedding_size": "word_embed_proj_dim",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "mlp_size": "ffn_dim",
        "max_positions": "max_position_embeddings",
        "is_tied": "tie_word_embeddings",
    },
)
