"""How much of a teacher's width a student keeps: channels, neurons and heads.

Sizes become multiples that kernels and quantized groups work well with (compress/cut/widths.py), so
they are near the percentage and rarely exactly it.
"""

from dataclasses import replace

from paredown.compress.cut.widths import MULTIPLES, remaining_width
from paredown.errors import ConfigError, UnsupportedError
from paredown.models.checkpoint import Checkpoint
from paredown.models.config_fields import config_of
from paredown.spec.attention import Attention
from paredown.spec.experts import Experts
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import ModelSpec

# A field of Granite 4, dense; Transformers checks it against the hidden channels.
_STATE_SPACE = "mamba_expand"


def narrower(source: Checkpoint, percent: int) -> ModelSpec:
    """Returns the spec of a student that keeps so many percent of the hidden channels, of the
    neurons of each MLP or expert, and of the key-value heads with their query heads. Heads keep
    their size, and a single key-value head stays.

    Where the family derives the size of a head from the hidden channels, these follow the heads.
    Raises ConfigError for a percentage that leaves no head or no sensible width, and
    UnsupportedError where the family's config cannot express the student.
    """
    if _STATE_SPACE in source.config:
        raise UnsupportedError(
            "the width of this family cannot be sliced: its config has fields of state-space "
            "layers, which it does not have, that follow from the hidden channels",
            seen=f"{_STATE_SPACE} {source.config[_STATE_SPACE]}",
            remedy="Remove layers instead (every-2), or give a config.",
        )
    spec = source.spec
    layers = tuple(_layer(layer, percent) for layer in spec.layers)
    choices = [_width(spec.hidden_size, percent, "hidden channels")]
    by_heads = layers[0].attention.query_size
    if by_heads < spec.hidden_size and by_heads % MULTIPLES[-1] == 0:
        choices.append(by_heads)
    refused: list[UnsupportedError] = []
    for hidden_size in choices:
        found = _with_hidden(spec, layers, hidden_size)
        try:
            config_of(found, source.config)
        except UnsupportedError as error:
            refused.append(error)
        else:
            return found
    raise refused[0]


def _with_hidden(spec: ModelSpec, layers: tuple[LayerSpec, ...], hidden_size: int) -> ModelSpec:
    embedding = spec.embedding
    if embedding.multiplier == spec.hidden_size**0.5:  # Gemma
        embedding = replace(embedding, multiplier=hidden_size**0.5)
    return replace(spec, layers=layers, hidden_size=hidden_size, embedding=embedding)


def _layer(layer: LayerSpec, percent: int) -> LayerSpec:
    return replace(
        layer, attention=_attention(layer.attention, percent), mlp=_mlp(layer.mlp, percent)
    )


def _attention(attention: Attention, percent: int) -> Attention:
    num_kv_heads = attention.num_kv_heads
    if num_kv_heads > 1:
        num_kv_heads = (num_kv_heads * percent + 50) // 100
    if not num_kv_heads:
        raise ConfigError(
            "the student would have no attention head",
            seen=f"width-{percent} of {attention.num_kv_heads} key-value heads",
            remedy=f"Give at least width-{-(-50 // attention.num_kv_heads)}.",
        )
    num_heads = num_kv_heads * attention.num_heads_per_group
    return replace(attention, num_kv_heads=num_kv_heads, num_heads=num_heads)


def _mlp(mlp: Mlp | Experts, percent: int) -> Mlp | Experts:
    size = _width(mlp.size, percent, "neurons")
    if isinstance(mlp, Mlp):
        return replace(mlp, size=size)
    shared = mlp.shared_size
    if shared is not None:
        shared = _width(shared, percent, "neurons of the shared expert")
    return replace(mlp, size=size, shared_size=shared)


def _width(width: int, percent: int, what: str) -> int:
    try:
        return remaining_width(width, 1 - percent / 100)
    except ConfigError as error:
        raise ConfigError(
            f"width-{percent} leaves no sensible number of {what}",
            seen=f"{width * percent / 100:g} of {width}, and no multiple of {MULTIPLES[-1]} below "
            f"{width} is near",
            remedy="Give another percentage, or keep the width and remove layers (every-2).",
        ) from error
