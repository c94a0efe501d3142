"""What llama, mistral, the qwens and their kin with experts share: RMSNorm, rotary positions, a
gated MLP, and names."""

from collections.abc import Mapping
from dataclasses import dataclass

from paredown.errors import CheckpointError, UnsupportedError
from paredown.models.families.family import LinearSource
from paredown.models.families.fields import Fields, even_heads
from paredown.models.families.rotary import DEFAULT_THETA, read_rotary
from paredown.spec.experts import Experts
from paredown.spec.model import ModelSpec

PREFIXES = ("model.", "")
# What `layer_types` calls the attention of a layer.
SLIDING, FULL = "sliding_attention", "full_attention"
EMBEDDING = "embed_tokens"
ATTENTION: Mapping[str, LinearSource] = {
    "q": LinearSource(module="layers.{layer}.self_attn.q_proj"),
    "k": LinearSource(module="layers.{layer}.self_attn.k_proj"),
    "v": LinearSource(module="layers.{layer}.self_attn.v_proj"),
    "o": LinearSource(module="layers.{layer}.self_attn.o_proj"),
}
LINEARS: Mapping[str, LinearSource] = {
    **ATTENTION,
    "gate": LinearSource(module="layers.{layer}.mlp.gate_proj"),
    "up": LinearSource(module="layers.{layer}.mlp.up_proj"),
    "down": LinearSource(module="layers.{layer}.mlp.down_proj"),
}
NORMS: Mapping[str, str] = {
    "attention_norm": "layers.{layer}.input_layernorm",
    "mlp_norm": "layers.{layer}.post_attention_layernorm",
    "final_norm": "norm",
}
# Rotary frequencies that Transformers before 4.32 saved as buffers.
IGNORABLE = (r"(model\.)?(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """How the families differ. Defaults are the config classes' own, for fields left out."""

    family: str
    qkv_bias: bool = False
    attention_out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    default_num_kv_heads: int | None = None
    default_head_dim: int | None = None
    default_norm_eps: float = 1e-6
    default_theta: float = DEFAULT_THETA
    sliding_window: int | None = None
    full_layers: tuple[int, ...] = ()
    experts: Experts | None = None


def read_gated_rotary(fields: Fields, variant: Variant) -> ModelSpec:
    hidden_size = fields.integer("hidden_size")
    num_heads = fields.integer("num_attention_heads")
    head_dim = fields.optional_integer("head_dim", variant.default_head_dim)
    num_kv_heads = fields.optional_integer("num_key_value_heads", variant.default_num_kv_heads)
    return ModelSpec(
        family=variant.family,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden_size,
        num_layers=fields.integer("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads or num_heads,
        head_dim=head_dim or even_heads(hidden_size, num_heads),
        intermediate_size=fields.integer("intermediate_size"),
        max_positions=fields.integer("max_position_embeddings"),
        positions=read_rotary(fields, variant.default_theta),
        norm="rms",
        norm_eps=fields.number("rms_norm_eps", variant.default_norm_eps),
        activation=fields.activation("hidden_act", "silu"),
        gated=True,
        qkv_bias=variant.qkv_bias,
        attention_out_bias=variant.attention_out_bias,
        mlp_bias=variant.mlp_bias,
        qk_norm=variant.qk_norm,
        tied_embeddings=fields.flag("tie_word_embeddings", False),
        sliding_window=variant.sliding_window,
        full_layers=variant.full_layers,
        experts=variant.experts,
    )


def read_layered_window(fields: Fields) -> tuple[int | None, tuple[int, ...]]:
    """The sliding window of qwen2 and qwen3, and the layers without it: `layer_types` names them,
    else they are those before `max_window_layers`."""
    if not fields.flag("use_sliding_window", False):
        return None, ()
    window = fields.optional_integer("sliding_window", 4096)
    num_layers = fields.integer("num_hidden_layers")
    types = fields.config.get("layer_types")
    if isinstance(types, list):
        full = full_layers(fields, types, num_layers)
    else:
        num_full = fields.integer("max_window_layers", 28, minimum=0)
        full = list(range(min(num_layers, num_full)))
    if window is None or len(full) == num_layers:
        return None, ()
    return window, tuple(full)


def full_layers(fields: Fields, types: list[object], num_layers: int) -> list[int]:
    """Of those that `layer_types` names, the numbers of the ones without a window."""
    if len(types) != num_layers:
        raise CheckpointError(
            f"{fields.where}: layer_types must name each layer",
            seen=f"{len(types)} for {num_layers} layers",
            remedy="Correct the field, or download the checkpoint again.",
        )
    unknown = [kind for kind in types if kind not in (SLIDING, FULL)]
    if unknown:
        raise UnsupportedError(
            f"{fields.where} names an unknown kind of layer",
            seen=unknown[0],
            remedy=f"Known kinds: {FULL}, {SLIDING}.",
        )
    return [layer for layer, kind in enumerate(types) if kind == FULL]
