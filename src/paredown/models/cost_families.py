"""Families whose cost is known from their config.json, and that cannot be run: a spec with the
shapes of their products, of which what a run needs beside these is left out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from paredown.models.families.expert_fields import read_num_experts
from paredown.models.families.fields import Fields, even_heads
from paredown.models.families.gated_rotary import full_layers
from paredown.spec.experts import Experts
from paredown.spec.model import ModelSpec, Rotary


@dataclass(frozen=True, kw_only=True)
class CostFamily:
    """`left_out`: what of the family is not in the spec, for people."""

    read_spec: Callable[[Fields], ModelSpec]
    left_out: str


def _read_gpt_neox(fields: Fields) -> ModelSpec:
    """GPT-NeoX and Pythia (arXiv 2204.06745, 2304.01373)."""
    hidden_size = fields.integer("hidden_size")
    num_heads = fields.integer("num_attention_heads")
    bias = fields.flag("attention_bias", True)
    return ModelSpec(
        family="gpt_neox",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden_size,
        num_layers=fields.integer("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=even_heads(hidden_size, num_heads),
        intermediate_size=fields.integer("intermediate_size"),
        max_positions=fields.integer("max_position_embeddings", 2048),
        positions=Rotary(theta=fields.number("rotary_emb_base", 10000.0)),
        norm="layer",
        norm_eps=fields.number("layer_norm_eps", 1e-5),
        activation=fields.activation("hidden_act", "gelu"),
        gated=False,
        qkv_bias=bias,
        attention_out_bias=bias,
        mlp_bias=True,
        tied_embeddings=fields.flag("tie_word_embeddings", False),
    )


def _read_gemma2(fields: Fields) -> ModelSpec:
    """Gemma 2 (arXiv 2408.00118): every other layer has a window, the first one too."""
    hidden_size = fields.integer("hidden_size")
    bias = fields.flag("attention_bias", False)
    return ModelSpec(
        family="gemma2",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden_size,
        num_layers=fields.integer("num_hidden_layers"),
        num_heads=fields.integer("num_attention_heads"),
        num_kv_heads=fields.integer("num_key_value_heads"),
        head_dim=fields.integer("head_dim", 256),
        intermediate_size=fields.integer("intermediate_size"),
        max_positions=fields.integer("max_position_embeddings", 8192),
        positions=Rotary(theta=fields.number("rope_theta", 10000.0)),
        norm="rms",
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        activation=fields.activation("hidden_activation", "gelu_pytorch_tanh"),
        gated=True,
        qkv_bias=bias,
        attention_out_bias=bias,
        tied_embeddings=fields.flag("tie_word_embeddings", True),
        sliding_window=fields.optional_integer("sliding_window", 4096),
        full_layers=_alternating(fields),
    )


def _read_gpt_oss(fields: Fields) -> ModelSpec:
    """gpt-oss (arXiv 2508.10925): every layer has experts, every other one a window."""
    num, num_per_token = read_num_experts(fields, "num_local_experts")
    bias = fields.flag("attention_bias", True)
    return ModelSpec(
        family="gpt_oss",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=fields.integer("hidden_size"),
        num_layers=fields.integer("num_hidden_layers"),
        num_heads=fields.integer("num_attention_heads"),
        num_kv_heads=fields.integer("num_key_value_heads", 8),
        head_dim=fields.integer("head_dim", 64),
        intermediate_size=fields.integer("intermediate_size"),
        max_positions=fields.integer("max_position_embeddings", 131072),
        positions=Rotary(theta=fields.number("rope_theta", 150000.0)),
        norm="rms",
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        activation=fields.activation("hidden_act", "silu"),
        gated=True,
        qkv_bias=bias,
        attention_out_bias=bias,
        tied_embeddings=fields.flag("tie_word_embeddings", False),
        sliding_window=fields.optional_integer("sliding_window", 128),
        full_layers=_alternating(fields),
        experts=Experts(
            num=num,
            num_per_token=num_per_token,
            intermediate_size=fields.integer("intermediate_size"),
            is_normalized=True,
        ),
    )


def _alternating(fields: Fields) -> tuple[int, ...]:
    """The layers without a window: those that `layer_types` names, else every other one."""
    num_layers = fields.integer("num_hidden_layers")
    types = fields.config.get("layer_types")
    if isinstance(types, list):
        return tuple(full_layers(fields, types, num_layers))
    return tuple(range(1, num_layers, 2))


COST_FAMILIES: Mapping[str, CostFamily] = {
    "gpt_neox": CostFamily(
        read_spec=_read_gpt_neox, left_out="that a part of each head is rotated, parallel residuals"
    ),
    "gemma2": CostFamily(
        read_spec=_read_gemma2, left_out="two of a layer's four norms, caps of scores and logits"
    ),
    "gpt_oss": CostFamily(
        read_spec=_read_gpt_oss, left_out="biases of experts and routers, sinks of heads"
    ),
}
