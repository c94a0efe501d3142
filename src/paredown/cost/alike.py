"""Groups a model's layers by what a cost depends on, so that each kind is computed once."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from paredown.cost.model_formats import ModelFormats
from paredown.spec.attention import Attention
from paredown.spec.experts import Experts
from paredown.spec.kv import KVDType, KVSpec
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import ModelSpec

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Alike(Generic[T]):
    """`count` layers with the same `part`, and whether the last layer is among them. `suffix` ends
    the names of their operations; it is empty where all layers with such a part are alike."""

    part: T
    count: int
    suffix: str
    has_last: bool


@dataclass(frozen=True, kw_only=True)
class AttentionLayers:
    """Layers that attend alike. `window_number` is the number of their window among the model's
    windows (`ModelSpec.windows`), None where they have none."""

    suffix: str
    count: int
    attention: Attention
    kv_dtype: KVDType
    window_number: int | None
    has_last: bool

    @property
    def is_windowed(self) -> bool:
        return self.window_number is not None


def projections(spec: ModelSpec) -> list[Alike[Attention]]:
    """Groups the layers by the sizes of their attention."""
    return _alike([_sizes(layer.attention) for layer in spec.layers], _heads_name)


def crossed_layers(spec: ModelSpec) -> list[Alike[Attention]]:
    """Groups the layers with cross-attention by its sizes."""
    parts = [None if layer.cross is None else _sizes(layer.cross) for layer in spec.layers]
    return _alike(parts, _heads_name)


def dense_layers(spec: ModelSpec) -> list[Alike[Mlp]]:
    """Groups the layers with a dense MLP by that MLP."""
    parts = [layer.mlp if isinstance(layer.mlp, Mlp) else None for layer in spec.layers]
    return _alike(parts, lambda mlp: f"{mlp.size} columns")


def expert_layers(spec: ModelSpec) -> list[Alike[Experts]]:
    """Groups the layers with experts by these, in the order of `ModelSpec.expert_kinds`."""
    return _alike(
        [layer.experts for layer in spec.layers], lambda one: f"{one.num} of {one.size} columns"
    )


def attention_layers(spec: ModelSpec, formats: ModelFormats) -> list[AttentionLayers]:
    """Groups the layers by window, heads and format of keys and values. Raises ConfigError where
    the formats are listed by layer and their number is not that of the layers."""
    dtypes = KVSpec(num_pages=1, dtype=formats.kv_dtype).layer_dtypes(spec.num_layers)
    kinds = [
        (layer.attention.window, dtype, _sizes(layer.attention))
        for layer, dtype in zip(spec.layers, dtypes, strict=True)
    ]
    suffixes = {alike.part: alike.suffix for alike in projections(spec)}
    counts = sorted(Counter(kinds).items(), key=lambda one: (one[0][0] or 0, one[0][1]))
    return [
        AttentionLayers(
            suffix=_window_suffix(spec, window)
            + suffixes[sizes]
            + (f", {dtype}" if len(set(dtypes)) > 1 else ""),
            count=count,
            attention=replace(sizes, window=window),
            kv_dtype=dtype,
            window_number=None if window is None else spec.windows.index(window),
            has_last=(window, dtype, sizes) == kinds[-1],
        )
        for (window, dtype, sizes), count in counts
    ]


def mlp_columns(layer: LayerSpec) -> int:
    """Returns the columns between the halves of a layer's MLP, for one token."""
    if isinstance(layer.mlp, Mlp):
        return layer.mlp.size
    return layer.mlp.num_per_token * layer.mlp.size + (layer.mlp.shared_size or 0)


def _alike(parts: Sequence[T | None], name_of: Callable[[T], str]) -> list[Alike[T]]:
    counts = Counter(part for part in parts if part is not None)
    return [
        Alike(
            part=part,
            count=count,
            suffix=f", {name_of(part)}" if len(counts) > 1 else "",
            has_last=parts[-1] == part,
        )
        for part, count in counts.items()
    ]


def _sizes(attention: Attention) -> Attention:
    """Returns the attention with nothing but its sizes."""
    return Attention(
        num_heads=attention.num_heads,
        num_kv_heads=attention.num_kv_heads,
        head_dim=attention.head_dim,
        rotary=None,
    )


def _heads_name(attention: Attention) -> str:
    return f"{attention.num_heads}/{attention.num_kv_heads} heads of {attention.head_dim}"


def _window_suffix(spec: ModelSpec, window: int | None) -> str:
    if window is None:
        return ""
    return ", window" if len(spec.windows) == 1 else f", window of {window}"
