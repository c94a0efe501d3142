"""Gemma 2 (arXiv 2408.00118): norms before and after attention and MLP, with weights stored minus
one, soft caps on scores and logits, and a window in every other layer from the first on."""

from collections.abc import Mapping

import numpy as np

from paredown.models.families import gated_rotary, gguf_rows
from paredown.models.families.family import Family
from paredown.models.families.fields import Fields
from paredown.models.families.gated_rotary import full_layers, with_full_layers
from paredown.models.families.gguf_rows import GGUFRows, Metadata
from paredown.models.families.rotary import read_rotary
from paredown.spec.attention import Attention
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import Embedding, ModelSpec, Output
from paredown.spec.norm import Norm, Norms

_WINDOW_KEY = "gemma2.attention.sliding_window"
# Field of config.json -> metadata key, and llama.cpp's default.
_CAPS: Mapping[str, tuple[str, float]] = {
    "attn_logit_softcapping": ("gemma2.attn_logit_softcapping", 50.0),
    "final_logit_softcapping": ("gemma2.final_logit_softcapping", 30.0),
}
# The model with this many layers scales its scores by the hidden columns per head. llama.cpp
# recognises it by this number.
_SCALED_BY_HIDDEN_SIZE = 46


def read_spec(fields: Fields) -> ModelSpec:
    fields.must_be("use_bidirectional_attention", None)
    hidden_size = fields.integer("hidden_size")
    num_layers = fields.num_layers("num_hidden_layers")
    bias = fields.flag("attention_bias", False)
    norm = Norm(kind="rms", eps=fields.number("rms_norm_eps", 1e-6), offset=1.0)
    layer = LayerSpec(
        attention=Attention(
            num_heads=fields.integer("num_attention_heads"),
            num_kv_heads=fields.integer("num_key_value_heads"),
            head_dim=fields.integer("head_dim", 256),
            rotary=read_rotary(fields),
            window=fields.optional_integer("sliding_window", 4096),
            qkv_bias=bias,
            out_bias=bias,
            scale=fields.number("query_pre_attn_scalar", 256) ** -0.5,
            soft_cap=fields.optional_number("attn_logit_softcapping", 50.0),
        ),
        mlp=Mlp(
            size=fields.integer("intermediate_size"),
            is_gated=True,
            activation=fields.activation("hidden_activation", "gelu_pytorch_tanh"),
        ),
        norms=Norms(attention=norm, mlp=norm, attention_output=norm, mlp_output=norm),
    )
    return ModelSpec(
        family="gemma2",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden_size,
        max_positions=fields.integer("max_position_embeddings", 8192),
        embedding=Embedding(multiplier=hidden_size**0.5),
        layers=with_full_layers(layer, num_layers, every_other(fields, num_layers)),
        final_norm=norm,
        output=Output(
            is_tied=fields.flag("tie_word_embeddings", True),
            soft_cap=fields.optional_number("final_logit_softcapping", 30.0),
        ),
    )


def every_other(fields: Fields, num_layers: int) -> tuple[int, ...]:
    """Returns the layers without a window: those that `layer_types` names, else every other one."""
    types = fields.config.get("layer_types")
    if isinstance(types, list):
        return tuple(full_layers(fields, types, num_layers))
    return tuple(range(1, num_layers, 2))


def _config_from_gguf(fields: Fields, config: Mapping[str, object]) -> dict[str, object]:
    """Reads the metadata; absent keys have llama.cpp's defaults."""
    hidden_size, num_heads = config["hidden_size"], config["num_attention_heads"]
    scalar = config["head_dim"]
    if config["num_hidden_layers"] == _SCALED_BY_HIDDEN_SIZE:
        assert isinstance(hidden_size, int)
        assert isinstance(num_heads, int)
        scalar = hidden_size // num_heads
    return {
        **dict.fromkeys(("hidden_act", "hidden_activation"), "gelu_pytorch_tanh"),
        "query_pre_attn_scalar": scalar,
        "sliding_window": fields.integer(_WINDOW_KEY, 4096),
        **{name: fields.number(key, usual) for name, (key, usual) in _CAPS.items()},
    }


def _gguf_from_spec(spec: ModelSpec) -> Metadata:
    windows = [window for window in spec.windows if window is not None]
    found: Metadata = {_WINDOW_KEY: np.uint32(windows[0] if windows else 1)}
    caps = (spec.layers[0].attention.soft_cap, spec.present_output.soft_cap)
    for (key, _), cap in zip(_CAPS.values(), caps, strict=True):
        if cap is not None:
            found[key] = np.float32(cap)
    return found


GEMMA2 = Family(
    model_type="gemma2",
    read_spec=read_spec,
    prefixes=gated_rotary.PREFIXES,
    linears=gated_rotary.LINEARS,
    norms={
        **gated_rotary.NORMS,
        "attention_output_norm": "layers.{layer}.post_attention_layernorm",
        "mlp_norm": "layers.{layer}.pre_feedforward_layernorm",
        "mlp_output_norm": "layers.{layer}.post_feedforward_layernorm",
    },
    embedding=gated_rotary.EMBEDDING,
    ignorable=gated_rotary.IGNORABLE,
    config_fields={**gated_rotary.CONFIG_FIELDS, "layer_types": "layer_types"},
    gguf=GGUFRows(
        architecture="gemma2",
        class_name="Gemma2ForCausalLM",
        norms={
            **gguf_rows.NORMS,
            "attention_output_norm": "post_attention_norm",
            "mlp_output_norm": "post_ffw_norm",
        },
        norm_offset=1.0,
        takes_bias=False,
        output="tied",
        more_config=_config_from_gguf,
        more_metadata=_gguf_from_spec,
    ),
)
