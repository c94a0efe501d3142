"""ModernBERT (arXiv 2412.13663): pre-norm, rotary positions, windows in two of three layers, a
gated MLP, and no biases."""

from collections.abc import Sequence
from dataclasses import replace

from paredown.models.families.encoder_heads import classes, masked_lm_steps
from paredown.models.families.family import Family, LinearModule, fused_modules
from paredown.models.families.fields import Fields, even_heads
from paredown.models.families.gated_rotary import FULL, SLIDING, layer_kinds
from paredown.models.families.named_head import NamedHead, NamedStep, named_head
from paredown.models.families.rotary import read_rotary_by_kind
from paredown.spec.attention import Attention
from paredown.spec.head import HeadStep, PoolingKind
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import Embedding, ModelSpec
from paredown.spec.norm import Norm, Norms
from paredown.spec.roles import QKV_ROLES

_THETAS = {FULL: 160_000.0, SLIDING: 10_000.0}
_THETA_FIELDS = {FULL: "global_rope_theta", SLIDING: "local_rope_theta"}


def read_spec(fields: Fields) -> ModelSpec:
    # Concerns the head that predicts masked tokens alone.
    fields.pass_over("tie_word_embeddings")
    fields.must_be("rope_scaling", None)
    hidden_size = fields.integer("hidden_size")
    num_layers = fields.num_layers("num_hidden_layers")
    every = fields.integer("global_attn_every_n_layers", 3)
    usual = tuple(SLIDING if index % every else FULL for index in range(num_layers))
    kinds = layer_kinds(fields, num_layers, usual)
    norm = _norm(fields)
    num_heads, bias = fields.integer("num_attention_heads"), fields.flag("attention_bias", False)
    # As many tokens before a token as behind it, and the token itself.
    windows = {FULL: None, SLIDING: fields.integer("local_attention", 128, minimum=2) // 2 + 1}
    rotary = read_rotary_by_kind(fields, _THETAS, _THETA_FIELDS)
    layers = {
        kind: LayerSpec(
            attention=Attention(
                num_heads=num_heads,
                num_kv_heads=num_heads,
                head_dim=even_heads(hidden_size, num_heads),
                rotary=rotary[kind],
                window=windows[kind],
                is_causal=False,
                qkv_bias=bias,
                out_bias=bias,
            ),
            mlp=Mlp(
                size=fields.integer("intermediate_size"),
                is_gated=True,
                activation=fields.activation("hidden_activation", "gelu"),
                bias=fields.flag("mlp_bias", False),
            ),
            norms=Norms(attention=norm, mlp=norm),
        )
        for kind in (FULL, SLIDING)
    }
    first, *rest = (layers[kind] for kind in kinds)
    # The norm of the embedding is that of the first layer.
    first = replace(first, norms=replace(first.norms, attention=None))
    return ModelSpec(
        family="modernbert",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden_size,
        max_positions=fields.integer("max_position_embeddings", 8192),
        embedding=Embedding(norm=norm),
        layers=(first, *rest),
        final_norm=norm,
        output=None,
    )


def _norm(fields: Fields) -> Norm:
    return Norm(
        kind="layer",
        eps=fields.number("norm_eps", 1e-5),
        is_biased=fields.flag("norm_bias", False),
    )


def _classifier(fields: Fields, spec: ModelSpec) -> NamedHead:
    poolings: dict[str, PoolingKind] = {"cls": "cls", "mean": "mean"}
    name = fields.text("classifier_pooling", "cls")
    if name not in poolings:
        raise fields.wrong("classifier_pooling", "cls or mean")
    dense = HeadStep(
        size=spec.hidden_size,
        has_bias=fields.flag("classifier_bias", False),
        activation=fields.activation("classifier_activation", "gelu"),
        norm=_norm(fields),
    )
    return named_head(
        "classification",
        pooling=(poolings[name],),
        steps=(
            NamedStep(step=dense, module="head.dense", norm="head.norm"),
            NamedStep(step=HeadStep(size=len(classes(fields))), module="classifier"),
        ),
    )


def _masked_lm(fields: Fields, spec: ModelSpec) -> Sequence[NamedStep]:
    first, last = masked_lm_steps(
        fields,
        spec,
        activation=fields.activation("classifier_activation", "gelu"),
        dense="head.dense",
        norm="head.norm",
        decoder="decoder",
        bias="decoder.bias",
    )
    has_bias = fields.flag("classifier_bias", False)
    return (
        replace(first, step=replace(first.step, has_bias=has_bias)),
        replace(last, step=replace(last.step, has_bias=fields.flag("decoder_bias", True))),
    )


MODERNBERT = Family(
    model_type="modernbert",
    read_spec=read_spec,
    prefixes=("model.", ""),
    linears={
        **fused_modules("layers.{layer}.attn.Wqkv", QKV_ROLES),
        "o": LinearModule(module="layers.{layer}.attn.Wo"),
        **fused_modules("layers.{layer}.mlp.Wi", ("gate", "up")),
        "down": LinearModule(module="layers.{layer}.mlp.Wo"),
    },
    norms={
        "embedding_norm": "embeddings.norm",
        "attention_norm": "layers.{layer}.attn_norm",
        "mlp_norm": "layers.{layer}.mlp_norm",
        "final_norm": "final_norm",
    },
    embedding="embeddings.tok_embeddings",
    config_fields={
        "vocab_size": "vocab_size",
        "hidden_size": "hidden_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "mlp_size": "intermediate_size",
        "max_positions": "max_position_embeddings",
        "layer_types": "layer_types",
    },
    # The head of pre-training.
    ignorable=(r"head\.(dense|norm)\..*", r"decoder\.(weight|bias)"),
    classifier=_classifier,
    masked_lm=_masked_lm,
)
