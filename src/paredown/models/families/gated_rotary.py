"""Reads the families like Llama, Mistral and Qwen, dense or with experts: RMSNorm, rotary
positions, a gated MLP, and the same tensor names."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from paredown.errors import CheckpointError, UnsupportedError
from paredown.models.families.expert_fields import ExpertLayers
from paredown.models.families.family import LinearModule
from paredown.models.families.fields import Fields, even_heads
from paredown.models.families.rotary import DEFAULT_THETA, read_rotary
from paredown.spec.attention import Attention
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import Embedding, ModelSpec, Output
from paredown.spec.norm import Norm, Norms

PREFIXES = ("model.", "")
# Values of `layer_types` for the attention of a layer.
SLIDING, FULL = "sliding_attention", "full_attention"
EMBEDDING = "embed_tokens"
ATTENTION: Mapping[str, LinearModule] = {
    "q": LinearModule(module="layers.{layer}.self_attn.q_proj"),
    "k": LinearModule(module="layers.{layer}.self_attn.k_proj"),
    "v": LinearModule(module="layers.{layer}.self_attn.v_proj"),
    "o": LinearModule(module="layers.{layer}.self_attn.o_proj"),
}
LINEARS: Mapping[str, LinearModule] = {
    **ATTENTION,
    "gate": LinearModule(module="layers.{layer}.mlp.gate_proj"),
    "up": LinearModule(module="layers.{layer}.mlp.up_proj"),
    "down": LinearModule(module="layers.{layer}.mlp.down_proj"),
}
NORMS: Mapping[str, str] = {
    "attention_norm": "layers.{layer}.input_layernorm",
    "mlp_norm": "layers.{layer}.post_attention_layernorm",
    "final_norm": "norm",
}
# Sizes that the config stores, with the names of their fields.
CONFIG_FIELDS: Mapping[str, str] = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "mlp_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
    "is_tied": "tie_word_embeddings",
}
# Rotary frequencies, which Transformers before 4.32 saved as buffers.
IGNORABLE = (r"(model\.)?(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",)


@dataclass(frozen=True, kw_only=True)
class FamilyTraits:
    """The differences between the families. Defaults for absent fields are those of the config
    classes.

    `sliding_window`  applies to every layer except `full_layers`
    """

    family: str
    qkv_bias: bool = False
    attention_out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    default_num_kv_heads: int | None = None
    default_head_dim: int | None = None
    default_norm_eps: float = 1e-6
    default_theta: float = DEFAULT_THETA
    rotary_share: float = 1.0
    sliding_window: int | None = None
    full_layers: tuple[int, ...] = ()
    experts: ExpertLayers | None = None


def read_gated_rotary(fields: Fields, variant: FamilyTraits) -> ModelSpec:
    hidden_size = fields.integer("hidden_size")
    norm = Norm(kind="rms", eps=fields.number("rms_norm_eps", variant.default_norm_eps))
    head_norm = norm if variant.qk_norm else None
    layer = LayerSpec(
        attention=_read_attention(fields, variant, hidden_size),
        mlp=Mlp(
            size=fields.integer("intermediate_size"),
            is_gated=True,
            activation=fields.activation("hidden_act", "silu"),
            bias=variant.mlp_bias,
        ),
        norms=Norms(attention=norm, mlp=norm, q=head_norm, k=head_norm),
    )
    layers = with_full_layers(layer, fields.num_layers("num_hidden_layers"), variant.full_layers)
    if variant.experts is not None:
        layers = with_experts(layers, variant.experts)
    return ModelSpec(
        family=variant.family,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden_size,
        max_positions=fields.integer("max_position_embeddings"),
        embedding=Embedding(),
        layers=layers,
        final_norm=norm,
        output=Output(is_tied=fields.flag("tie_word_embeddings", False)),
    )


def _read_attention(fields: Fields, variant: FamilyTraits, hidden_size: int) -> Attention:
    num_heads = fields.integer("num_attention_heads")
    head_dim = fields.optional_integer("head_dim", variant.default_head_dim)
    num_kv_heads = fields.optional_integer("num_key_value_heads", variant.default_num_kv_heads)
    return Attention(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads or num_heads,
        head_dim=head_dim or even_heads(hidden_size, num_heads),
        rotary=read_rotary(fields, variant.default_theta, variant.rotary_share),
        window=variant.sliding_window,
        qkv_bias=variant.qkv_bias,
        out_bias=variant.attention_out_bias,
    )


def with_full_layers(
    layer: LayerSpec, num_layers: int, full_layers: Collection[int]
) -> tuple[LayerSpec, ...]:
    """Repeats the layer `num_layers` times, without its window in `full_layers`."""
    full = replace(layer, attention=replace(layer.attention, window=None))
    return tuple(full if index in full_layers else layer for index in range(num_layers))


def with_experts(layers: tuple[LayerSpec, ...], experts: ExpertLayers) -> tuple[LayerSpec, ...]:
    """Returns the layers with experts in place of an MLP where they have them."""
    return tuple(
        replace(layer, mlp=experts.in_layer(index) or layer.mlp)
        for index, layer in enumerate(layers)
    )


def read_layered_window(fields: Fields) -> tuple[int | None, tuple[int, ...]]:
    """Returns the sliding window of qwen2 and qwen3, and the layers without it: those that
    `layer_types` names, else those before `max_window_layers`."""
    if not fields.flag("use_sliding_window", False):
        fields.pass_over("sliding_window", "max_window_layers")
        return None, ()
    window = fields.optional_integer("sliding_window", 4096)
    num_layers = fields.num_layers("num_hidden_layers")
    types = fields.config.get("layer_types")
    if isinstance(types, list):
        fields.pass_over("max_window_layers")
        full = full_layers(fields, types, num_layers)
    else:
        num_full = fields.integer("max_window_layers", 28, minimum=0)
        full = list(range(min(num_layers, num_full)))
    if window is None or len(full) == num_layers:
        return None, ()
    return window, tuple(full)


def full_layers(fields: Fields, types: list[object], num_layers: int) -> list[int]:
    """Returns the numbers of the layers that have no window according to `layer_types`."""
    _check_kinds(fields, types, num_layers)
    return [layer for layer, kind in enumerate(types) if kind == FULL]


def layer_kinds(fields: Fields, num_layers: int, usual: Sequence[str]) -> list[str]:
    """Returns FULL or SLIDING for each layer, from `layer_types` or else the family's `usual`
    kinds."""
    types = fields.config.get("layer_types")
    if types is None:
        return list(usual)
    if not isinstance(types, list):
        raise fields.wrong("layer_types", "a list")
    _check_kinds(fields, types, num_layers)
    return [str(kind) for kind in types]


def _check_kinds(fields: Fields, types: list[object], num_layers: int) -> None:
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
