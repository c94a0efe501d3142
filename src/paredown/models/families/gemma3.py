"""Gemma 3's text models (arXiv 2503.19786): Gemma 2's layer with norms of query and key heads in
place of soft caps. Five of six layers have a window and rotary positions with their own base.
EmbeddingGemma is such a model whose tokens see later ones."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from paredown.models.families import gated_rotary, gguf_rows
from paredown.models.families.family import Family
from paredown.models.families.fields import Fields
from paredown.models.families.gated_rotary import FULL, SLIDING, layer_kinds
from paredown.models.families.gguf_rows import GGUFRows, Metadata
from paredown.models.families.rotary import read_rotary_by_kind
from paredown.spec.attention import Attention
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import Embedding, ModelSpec, Output
from paredown.spec.norm import Norm, Norms
from paredown.spec.rotary import Rotary

_PATTERN = 6
_WINDOW = 4096
_THETAS = {FULL: 1_000_000.0, SLIDING: 10_000.0}
_WINDOW_KEY = "gemma3.attention.sliding_window"
_CAP_KEY = "gemma3.final_logit_softcapping"
# The model with this many layers scales its scores by the hidden columns per head. llama.cpp
# recognises it by this number.
_SCALED_BY_HIDDEN_SIZE = 62


def read_spec(fields: Fields) -> ModelSpec:
    is_causal = not _is_bidirectional(fields)
    fields.must_be("attn_logit_softcapping", None)
    hidden_size = fields.integer("hidden_size", 2304)
    num_layers = fields.num_layers("num_hidden_layers")
    pattern = fields.integer("sliding_window_pattern", _PATTERN)
    if fields.config.get("layer_types") is not None:
        fields.pass_over("_sliding_window_pattern")
    usual = tuple(SLIDING if (index + 1) % pattern else FULL for index in range(num_layers))
    rotary = read_rotary_by_kind(fields, _THETAS, {SLIDING: "rope_local_base_freq"})
    norm = Norm(kind="rms", eps=fields.number("rms_norm_eps", 1e-6), offset=1.0)
    window = fields.optional_integer("sliding_window", _WINDOW)
    if window is not None and not is_causal:
        # Half as many tokens before a token, half behind it, and the token itself.
        window = window // 2 + 1
    layers = {
        FULL: _layer(fields, norm, rotary[FULL], None, is_causal),
        SLIDING: _layer(fields, norm, rotary[SLIDING], window, is_causal),
    }
    return ModelSpec(
        family="gemma3_text",
        vocab_size=fields.integer("vocab_size", 262_208),
        hidden_size=hidden_size,
        max_positions=fields.integer("max_position_embeddings", 131_072),
        embedding=Embedding(multiplier=hidden_size**0.5),
        layers=tuple(layers[kind] for kind in layer_kinds(fields, num_layers, usual)),
        final_norm=norm,
        output=_output(fields) if is_causal else None,
    )


def _is_bidirectional(fields: Fields) -> bool:
    """Returns whether tokens see later ones (EmbeddingGemma, arXiv 2509.20354)."""
    name = "use_bidirectional_attention"
    return fields.config.get(name) is not None and fields.flag(name, False)


def _output(fields: Fields) -> Output:
    return Output(
        is_tied=fields.flag("tie_word_embeddings", True),
        soft_cap=fields.optional_number("final_logit_softcapping", None),
    )


def _layer(
    fields: Fields, norm: Norm, rotary: Rotary, window: int | None, is_causal: bool
) -> LayerSpec:
    bias = fields.flag("attention_bias", False)
    return LayerSpec(
        attention=Attention(
            num_heads=fields.integer("num_attention_heads", 8),
            num_kv_heads=fields.integer("num_key_value_heads", 4),
            head_dim=fields.integer("head_dim", 256),
            rotary=rotary,
            window=window,
            is_causal=is_causal,
            qkv_bias=bias,
            out_bias=bias,
            scale=fields.number("query_pre_attn_scalar", 256) ** -0.5,
        ),
        mlp=Mlp(
            size=fields.integer("intermediate_size", 9216),
            is_gated=True,
            activation=fields.activation("hidden_activation", "gelu_pytorch_tanh"),
        ),
        norms=Norms(
            attention=norm, mlp=norm, attention_output=norm, mlp_output=norm, q=norm, k=norm
        ),
    )


def _config_from_gguf(fields: Fields, config: Mapping[str, object]) -> dict[str, object]:
    hidden_size, num_heads = config["hidden_size"], config["num_attention_heads"]
    scalar = config["head_dim"]
    if config["num_hidden_layers"] == _SCALED_BY_HIDDEN_SIZE:
        assert isinstance(hidden_size, int)
        assert isinstance(num_heads, int)
        scalar = hidden_size // num_heads
    found: dict[str, object] = {
        **dict.fromkeys(("hidden_act", "hidden_activation"), "gelu_pytorch_tanh"),
        "query_pre_attn_scalar": scalar,
        "sliding_window": fields.integer(_WINDOW_KEY),
    }
    if _CAP_KEY in fields.config:
        found["final_logit_softcapping"] = fields.number(_CAP_KEY)
    return found


def _embedding_config(fields: Fields, config: Mapping[str, object]) -> dict[str, object]:
    fields.must_be("gemma-embedding.attention.causal", False)
    return {
        **dict.fromkeys(("hidden_act", "hidden_activation"), "gelu_pytorch_tanh"),
        "use_bidirectional_attention": True,
        "query_pre_attn_scalar": config["head_dim"],
        "sliding_window": fields.integer("gemma-embedding.attention.sliding_window"),
    }


def _embedding_metadata(spec: ModelSpec) -> Metadata:
    # A file has the tokens on both sides together.
    windows = [2 * (window - 1) for window in spec.windows]
    return {
        "gemma-embedding.attention.causal": False,
        "gemma-embedding.attention.sliding_window": np.uint32(windows[0] if windows else 1),
    }


def _gguf_from_spec(spec: ModelSpec) -> Metadata:
    windows = [window for window in spec.windows if window is not None]
    found: Metadata = {_WINDOW_KEY: np.uint32(windows[0] if windows else 1)}
    if spec.present_output.soft_cap is not None:
        found[_CAP_KEY] = np.float32(spec.present_output.soft_cap)
    return found


_GGUF = GGUFRows(
    architecture="gemma3",
    class_name="Gemma3ForCausalLM",
    norms={
        **gguf_rows.NORMS,
        "q_norm": "attn_q_norm",
        "k_norm": "attn_k_norm",
        "attention_output_norm": "post_attention_norm",
        "mlp_output_norm": "post_ffw_norm",
    },
    norm_offset=1.0,
    takes_bias=False,
    more_config=_config_from_gguf,
    more_metadata=_gguf_from_spec,
)
GEMMA3 = Family(
    model_type="gemma3_text",
    read_spec=read_spec,
    prefixes=gated_rotary.PREFIXES,
    linears=gated_rotary.LINEARS,
    norms={
        **gated_rotary.NORMS,
        "attention_output_norm": "layers.{layer}.post_attention_layernorm",
        "mlp_norm": "layers.{layer}.pre_feedforward_layernorm",
        "mlp_output_norm": "layers.{layer}.post_feedforward_layernorm",
        "q_norm": "layers.{layer}.self_attn.q_norm",
        "k_norm": "layers.{layer}.self_attn.k_norm",
    },
    embedding=gated_rotary.EMBEDDING,
    ignorable=gated_rotary.IGNORABLE,
    config_fields={**gated_rotary.CONFIG_FIELDS, "layer_types": "layer_types"},
    gguf=_GGUF,
)
# EmbeddingGemma, an architecture of its own in GGUF files.
EMBEDDING_GEMMA = replace(
    GEMMA3,
    gguf=replace(
        _GGUF,
        architecture="gemma-embedding",
        class_name="Gemma3TextModel",
        more_config=_embedding_config,
        more_metadata=_embedding_metadata,
    ),
)
