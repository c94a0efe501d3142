"""Small models for tests that need only sizes, from a flat list of fields."""

from collections.abc import Collection
from typing import Any

from paredown.models.families.expert_fields import ExpertLayers
from paredown.models.families.gated_rotary import with_experts, with_full_layers
from paredown.spec.attention import Attention
from paredown.spec.context import Context
from paredown.spec.experts import Experts
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import Embedding, LearnedPositions, ModelSpec, Output
from paredown.spec.norm import Norm, Norms
from paredown.spec.rotary import Rotary

_DEFAULTS: dict[str, Any] = {
    "family": "llama",
    "qkv_bias": False,
    "attention_out_bias": False,
    "mlp_bias": False,
    "qk_norm": False,
    "tied_embeddings": False,
    "sliding_window": None,
    "full_layers": (),
    "experts": None,
}


def flat_spec(**given: Any) -> ModelSpec:
    """Returns a model of equal layers, except that those in `full_layers` have no window and those
    that `experts` (ExpertLayers) excludes are dense."""
    flat = {**_DEFAULTS, **given}
    norm = Norm(kind=flat["norm"], eps=flat["norm_eps"])
    head_norm = norm if flat["qk_norm"] else None
    positions, experts = flat["positions"], flat["experts"]
    layer = LayerSpec(
        attention=Attention(
            num_heads=flat["num_heads"],
            num_kv_heads=flat["num_kv_heads"],
            head_dim=flat["head_dim"],
            rotary=positions if isinstance(positions, Rotary) else None,
            window=flat["sliding_window"],
            qkv_bias=flat["qkv_bias"],
            out_bias=flat["attention_out_bias"],
        ),
        mlp=Mlp(
            size=flat["intermediate_size"],
            is_gated=flat["gated"],
            activation=flat["activation"],
            bias=flat["mlp_bias"],
        ),
        norms=Norms(attention=norm, mlp=norm, q=head_norm, k=head_norm),
    )
    layers = with_full_layers(layer, flat["num_layers"], flat["full_layers"])
    if experts is not None:
        assert isinstance(experts, ExpertLayers)
        layers = with_experts(layers, experts)
    learned = positions if isinstance(positions, LearnedPositions) else None
    return ModelSpec(
        family=flat["family"],
        vocab_size=flat["vocab_size"],
        hidden_size=flat["hidden_size"],
        max_positions=flat["max_positions"],
        embedding=Embedding(positions=learned),
        layers=layers,
        final_norm=norm,
        output=Output(is_tied=flat["tied_embeddings"]),
    )


def flat_fields(spec: ModelSpec) -> dict[str, Any]:
    """Returns the arguments of `flat_spec` for this model, whose layers may differ only in
    windows."""
    layer = next(iter(spec.layers))
    attention, mlp = layer.attention, layer.mlp
    assert isinstance(mlp, Mlp)
    windows = [one.attention.window for one in spec.layers]
    is_mixed = len(spec.windows) == 1 and None in windows
    return {
        "family": spec.family,
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.hidden_size,
        "num_layers": spec.num_layers,
        "num_heads": attention.num_heads,
        "num_kv_heads": attention.num_kv_heads,
        "head_dim": attention.head_dim,
        "intermediate_size": mlp.size,
        "max_positions": spec.max_positions,
        "positions": attention.rotary or spec.embedding.positions,
        "norm": spec.final_norm.kind,
        "norm_eps": spec.final_norm.eps,
        "activation": mlp.activation,
        "gated": mlp.is_gated,
        "qkv_bias": attention.qkv_bias,
        "attention_out_bias": attention.out_bias,
        "mlp_bias": mlp.bias,
        "qk_norm": layer.norms.q is not None,
        "tied_embeddings": spec.is_tied,
        "sliding_window": spec.windows[0] if spec.windows else None,
        "full_layers": tuple(
            number for number, window in enumerate(windows) if is_mixed and window is None
        ),
    }


def changed(spec: ModelSpec, **changes: Any) -> ModelSpec:
    """Returns the model with these fields replaced."""
    made = flat_spec(**{**flat_fields(spec), **changes})
    assert flat_spec(**flat_fields(spec)) == spec
    return made


def context_of(model: ModelSpec | Context) -> Context:
    """Returns the model's context; a plain model runs without sinks."""
    return model if isinstance(model, Context) else Context(spec=model)


def silu_experts(
    *,
    num: int,
    num_per_token: int,
    size: int,
    is_normalized: bool,
    shared_size: int | None = None,
    step: int = 1,
    dense_layers: Collection[int] = (),
) -> ExpertLayers:
    """Returns gated experts for these layers."""
    experts = Experts(
        num=num,
        num_per_token=num_per_token,
        size=size,
        is_normalized=is_normalized,
        is_gated=True,
        activation="silu",
        shared_size=shared_size,
    )
    return ExpertLayers(experts=experts, step=step, dense_layers=frozenset(dense_layers))


def kv_layers(num_layers: int, num_kv_heads: int, head_dim: int) -> ModelSpec:
    """Returns a model with keys and values of these sizes."""
    return gated(
        num_layers=num_layers, num_heads=num_kv_heads, num_kv_heads=num_kv_heads, head_dim=head_dim
    )


def gated(**changes: Any) -> ModelSpec:
    """Returns a model with grouped heads, a gated MLP and its own output layer."""
    return changed(_GATED, **changes)


def plain() -> ModelSpec:
    """Returns a model with as many key heads as query heads, together as wide as the hidden state,
    and without a gate."""
    return gated(
        family="gpt2",
        num_kv_heads=4,
        head_dim=4,
        positions=LearnedPositions(),
        norm="layer",
        activation="gelu",
        gated=False,
        tied_embeddings=True,
    )


_GATED = flat_spec(
    vocab_size=50,
    hidden_size=16,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    intermediate_size=24,
    max_positions=64,
    positions=Rotary(theta=1e4),
    norm="rms",
    norm_eps=1e-5,
    activation="silu",
    gated=True,
)
