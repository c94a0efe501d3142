"""OPT (arXiv 2205.01068), the pre-norm sizes: learned positions from row 2 on, LayerNorm, ReLU."""

from paredown.models.families.family import Family, LinearSource
from paredown.models.families.fields import Fields, even_heads
from paredown.spec.model import LearnedPositions, ModelSpec

# torch.nn.LayerNorm's default: OPT's config has no field for it.
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
    return ModelSpec(
        family="opt",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden_size,
        num_layers=fields.integer("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=even_heads(hidden_size, num_heads),
        intermediate_size=fields.integer("ffn_dim"),
        max_positions=fields.integer("max_position_embeddings"),
        positions=LearnedPositions(offset=2),
        norm="layer",
        norm_eps=NORM_EPS,
        activation=fields.activation("activation_function", "relu"),
        gated=False,
        qkv_bias=bias,
        attention_out_bias=bias,
        mlp_bias=bias,
        tied_embeddings=fields.flag("tie_word_embeddings", True),
    )


OPT = Family(
    model_type="opt",
    read_spec=read_spec,
    prefixes=("model.decoder.", "decoder.", ""),
    linears={
        "q": LinearSource(module="layers.{layer}.self_attn.q_proj"),
        "k": LinearSource(module="layers.{layer}.self_attn.k_proj"),
        "v": LinearSource(module="layers.{layer}.self_attn.v_proj"),
        "o": LinearSource(module="layers.{layer}.self_attn.out_proj"),
        "up": LinearSource(module="layers.{layer}.fc1"),
        "down": LinearSource(module="layers.{layer}.fc2"),
    },
    norms={
        "attention_norm": "layers.{layer}.self_attn_layer_norm",
        "mlp_norm": "layers.{layer}.final_layer_norm",
        "final_norm": "final_layer_norm",
    },
    embedding="embed_tokens",
    position_embedding="embed_positions",
)
