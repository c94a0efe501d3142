"""BERT (arXiv 1810.04805) and what is built like it: MiniLM, BGE, E5, cross-encoders. Post-norm,
learned positions, token types, a norm on the embedding, biases."""

from collections.abc import Mapping, Sequence

import numpy as np

from paredown.models.families.encoder_heads import masked_lm_steps, two_layer_classifier
from paredown.models.families.family import Family, LinearModule
from paredown.models.families.fields import Fields, even_heads
from paredown.models.families.gguf_rows import (
    ENCODER_KEYS,
    POST_NORMS,
    GGUFRows,
    Metadata,
)
from paredown.models.families.gguf_rows import (
    TOKEN_TYPES as TYPE_COUNT,
)
from paredown.models.families.named_head import NamedHead, NamedStep
from paredown.spec.attention import Attention
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import Embedding, LearnedPositions, ModelSpec
from paredown.spec.norm import Norm, Norms

PREFIXES = ("bert.", "")
LINEARS = {
    "q": LinearModule(module="encoder.layer.{layer}.attention.self.query"),
    "k": LinearModule(module="encoder.layer.{layer}.attention.self.key"),
    "v": LinearModule(module="encoder.layer.{layer}.attention.self.value"),
    "o": LinearModule(module="encoder.layer.{layer}.attention.output.dense"),
    "up": LinearModule(module="encoder.layer.{layer}.intermediate.dense"),
    "down": LinearModule(module="encoder.layer.{layer}.output.dense"),
}
NORMS = {
    "embedding_norm": "embeddings.LayerNorm",
    "attention_sum_norm": "encoder.layer.{layer}.attention.output.LayerNorm",
    "mlp_sum_norm": "encoder.layer.{layer}.output.LayerNorm",
}
EMBEDDING = "embeddings.word_embeddings"
POSITIONS = "embeddings.position_embeddings"
TOKEN_TYPES = "embeddings.token_type_embeddings"
CONFIG_FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "head_dim": "head_dim",
    "mlp_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
}
# The pooler of a plain encoder, the heads of pre-training, and the positions as a buffer.
IGNORABLE = (r"(.*\.)?pooler\.dense\.(weight|bias)", r"cls\..*", r"(.*\.)?position_ids")
# Checkpoints of 2018 and 2019 call a norm's vectors so.
RENAMED = ((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias"))


def read_spec(fields: Fields) -> ModelSpec:
    return post_norm_spec(fields, "bert", num_token_types=fields.integer("type_vocab_size", 2))


def post_norm_spec(
    fields: Fields, family: str, *, num_token_types: int, first_position: int = 0
) -> ModelSpec:
    """Reads a model with BERT's layer. Rows of the table of positions before `first_position` stand
    for no position."""
    fields.must_be_off("is_decoder")
    fields.must_be_off("add_cross_attention")
    # Concerns the head that predicts masked tokens alone.
    fields.pass_over("tie_word_embeddings")
    hidden_size = fields.integer("hidden_size")
    num_heads = fields.integer("num_attention_heads")
    if fields.config.get("embedding_size") is not None:
        fields.must_be("embedding_size", hidden_size)
    norm = Norm(kind="layer", eps=fields.number("layer_norm_eps", 1e-12))
    layer = LayerSpec(
        attention=Attention(
            num_heads=num_heads,
            num_kv_heads=num_heads,
            # A model without some of its heads says how large they are.
            head_dim=fields.optional_integer("head_dim") or even_heads(hidden_size, num_heads),
            rotary=None,
            is_causal=False,
            qkv_bias=True,
            out_bias=True,
        ),
        mlp=Mlp(
            size=fields.integer("intermediate_size"),
            is_gated=False,
            activation=fields.activation("hidden_act", "gelu"),
            bias=True,
        ),
        norms=Norms(attention_sum=norm, mlp_sum=norm),
    )
    num_rows = fields.integer("max_position_embeddings", 512, minimum=first_position + 1)
    return ModelSpec(
        family=family,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden_size,
        max_positions=num_rows - first_position,
        embedding=Embedding(
            positions=LearnedPositions(offset=first_position),
            num_token_types=num_token_types,
            norm=norm,
        ),
        layers=(layer,) * fields.num_layers("num_hidden_layers"),
        final_norm=None,
        output=None,
    )


def _classifier(fields: Fields, spec: ModelSpec) -> NamedHead:
    return two_layer_classifier(
        fields, spec, dense="{prefix}pooler.dense", activation="tanh", classifier="classifier"
    )


def _masked_lm(fields: Fields, spec: ModelSpec) -> Sequence[NamedStep]:
    return masked_lm_steps(
        fields,
        spec,
        activation=fields.activation("hidden_act", "gelu"),
        dense="cls.predictions.transform.dense",
        norm="cls.predictions.transform.LayerNorm",
        decoder="cls.predictions.decoder",
        bias="cls.predictions.bias",
    )


def _config_from_gguf(fields: Fields, config: Mapping[str, object]) -> dict[str, object]:
    """Adds llama.cpp's conventions: biases everywhere, and an approximation of the same GELU."""
    fields.must_be("bert.attention.causal", False)
    fields.must_be("bert.attention.head_count_kv", config["num_attention_heads"])
    return {
        "hidden_act": "gelu",
        "rope_theta": None,
        "type_vocab_size": fields.integer(TYPE_COUNT, 1),
    }


def _gguf_from_spec(spec: ModelSpec) -> Metadata:
    return {
        "bert.attention.causal": False,
        TYPE_COUNT: np.uint32(spec.embedding.num_token_types),
    }


BERT = Family(
    model_type="bert",
    read_spec=read_spec,
    prefixes=PREFIXES,
    linears=LINEARS,
    norms=NORMS,
    embedding=EMBEDDING,
    position_embedding=POSITIONS,
    token_type_embedding=TOKEN_TYPES,
    config_fields=CONFIG_FIELDS | {"num_token_types": "type_vocab_size"},
    ignorable=IGNORABLE,
    renamed=RENAMED,
    classifier=_classifier,
    masked_lm=_masked_lm,
    gguf=GGUFRows(
        architecture="bert",
        class_name="BertModel",
        keys=ENCODER_KEYS,
        norms=POST_NORMS,
        more_config=_config_from_gguf,
        more_metadata=_gguf_from_spec,
    ),
)
