"""DistilBERT (arXiv 1910.01108): BERT's layer without token types, under names of its own."""

from collections.abc import Sequence

from paredown.models.families import bert
from paredown.models.families.encoder_heads import masked_lm_steps, two_layer_classifier
from paredown.models.families.family import Family, LinearModule
from paredown.models.families.fields import Fields
from paredown.models.families.named_head import NamedHead, NamedStep
from paredown.spec.model import ModelSpec

# Fixed in Transformers' code.
_EPS = 1e-12


def read_spec(fields: Fields) -> ModelSpec:
    # Whether the table of positions was made of sines: it is stored in any case.
    fields.pass_over("sinusoidal_pos_embds")
    changes = {
        "hidden_size": fields.integer("dim"),
        "num_attention_heads": fields.integer("n_heads"),
        "num_hidden_layers": fields.num_layers("n_layers"),
        "intermediate_size": fields.integer("hidden_dim"),
        "hidden_act": fields.text("activation", "gelu"),
        "layer_norm_eps": _EPS,
    }
    return bert.post_norm_spec(fields.overlaid(changes), "distilbert", num_token_types=0)


def _classifier(fields: Fields, spec: ModelSpec) -> NamedHead:
    return two_layer_classifier(
        fields, spec, dense="pre_classifier", activation="relu", classifier="classifier"
    )


def _masked_lm(fields: Fields, spec: ModelSpec) -> Sequence[NamedStep]:
    return masked_lm_steps(
        fields,
        spec,
        activation=fields.activation("activation", "gelu"),
        dense="vocab_transform",
        norm="vocab_layer_norm",
        decoder="vocab_projector",
        bias="vocab_projector.bias",
    )


DISTILBERT = Family(
    model_type="distilbert",
    read_spec=read_spec,
    prefixes=("distilbert.", ""),
    linears={
        "q": LinearModule(module="transformer.layer.{layer}.attention.q_lin"),
        "k": LinearModule(module="transformer.layer.{layer}.attention.k_lin"),
        "v": LinearModule(module="transformer.layer.{layer}.attention.v_lin"),
        "o": LinearModule(module="transformer.layer.{layer}.attention.out_lin"),
        "up": LinearModule(module="transformer.layer.{layer}.ffn.lin1"),
        "down": LinearModule(module="transformer.layer.{layer}.ffn.lin2"),
    },
    norms={
        "embedding_norm": "embeddings.LayerNorm",
        "attention_sum_norm": "transformer.layer.{layer}.sa_layer_norm",
        "mlp_sum_norm": "transformer.layer.{layer}.output_layer_norm",
    },
    embedding=bert.EMBEDDING,
    position_embedding=bert.POSITIONS,
    config_fields={
        "vocab_size": "vocab_size",
        "hidden_size": "dim",
        "num_layers": "n_layers",
        "num_heads": "n_heads",
        "mlp_size": "hidden_dim",
        "max_positions": "max_position_embeddings",
    },
    # The head of pre-training, and the positions as a buffer.
    ignorable=(r"vocab_(transform|layer_norm|projector)\..*", r"(.*\.)?position_ids"),
    classifier=_classifier,
    masked_lm=_masked_lm,
)
