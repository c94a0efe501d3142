"""KVSpec: the format in which keys and values are kept."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal, get_args

from paredown.errors import ConfigError
from paredown.spec.model import ModelSpec

# Static formats use scales that were calibrated and stored with the checkpoint, one for each layer
# or head. The other formats below 16 bits have one scale for each token and head.
KVDType = Literal["bf16", "fp32", "int8", "int4", "fp8", "int8-static", "fp8-static"]
# The formats that a recipe may ask a checkpoint's servers for.
KVFormat = Literal["int8", "int4", "fp8", "int8-static", "fp8-static"]
STATIC_KV_DTYPES: tuple[KVDType, ...] = ("int8-static", "fp8-static")
# The formats with which any model can be run.
KV_DTYPES: tuple[KVDType, ...] = tuple(
    dtype for dtype in get_args(KVDType) if dtype not in STATIC_KV_DTYPES
)
# One format for all layers, or one for each.
KVDTypes = KVDType | tuple[KVDType, ...]

_ELEMENT_BITS: dict[KVDType, int] = {
    "bf16": 16,
    "fp32": 32,
    "int8": 8,
    "int4": 4,
    "fp8": 8,
    "int8-static": 8,
    "fp8-static": 8,
}
_WITH_SCALES: tuple[KVDType, ...] = ("int8", "int4", "fp8")
_SCALE_BYTES = 2  # bf16, one per token and head for its keys and one for its values

# The native attention kernel works on 16 keys at once and stores keys transposed inside a page.
PAGE_SIZE = 16


@dataclass(frozen=True, kw_only=True)
class KVScales:
    """The divisors of a layer's keys and values in a static format: a finite number above 0 for
    each key-value head."""

    keys: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class KVSpec:
    """Describes `num_pages` pages of `PAGE_SIZE` tokens that all layers of a model share."""

    num_pages: int
    dtype: KVDTypes = "bf16"

    def __post_init__(self) -> None:
        for dtype in (self.dtype,) if isinstance(self.dtype, str) else self.dtype:
            check_kv_dtype(dtype)

    @property
    def num_tokens(self) -> int:
        return self.num_pages * PAGE_SIZE

    def layer_dtypes(self, num_layers: int) -> tuple[KVDType, ...]:
        """Returns the format of each layer. Raises ConfigError if the formats are listed by layer
        and their number is not `num_layers`."""
        if isinstance(self.dtype, str):
            return (self.dtype,) * num_layers
        if len(self.dtype) != num_layers:
            raise ConfigError(
                "each layer has one format of keys and values",
                seen=f"{len(self.dtype)} formats, {num_layers} layers",
                remedy="Give as many, or one for all.",
            )
        return self.dtype

    def page_bytes(self, spec: ModelSpec) -> int:
        """Returns the bytes of one page over all layers of a model: keys, values and their dynamic
        scales."""
        dtypes = self.layer_dtypes(spec.num_layers)
        return sum(
            2
            * layer.attention.num_kv_heads
            * PAGE_SIZE
            * token_bytes(dtype, layer.attention.head_dim)
            for layer, dtype in zip(spec.layers, dtypes, strict=True)
        )

    def name(self, num_layers: int) -> str:
        """Returns a name for people: bf16, int4 and scales, or (2 bf16 + 28 int4 and scales) where
        layers differ."""
        counts = Counter(self.layer_dtypes(num_layers))
        if len(counts) == 1:
            return _with_scales(next(iter(counts)))
        listed = [f"{count} {_with_scales(dtype)}" for dtype, count in counts.items()]
        return f"({' + '.join(listed)})"


def check_kv_dtype(dtype: str) -> None:
    """Raises ConfigError for an unknown format."""
    if dtype not in get_args(KVDType):
        raise ConfigError(
            "unknown format of keys and values",
            seen=dtype,
            remedy=f"Use one of {', '.join(KV_DTYPES)}.",
        )


def _with_scales(dtype: KVDType) -> str:
    return f"{dtype} and scales" if dtype in _WITH_SCALES else dtype


def token_bytes(dtype: KVDType, head_dim: int) -> int:
    """Returns the bytes of the key, or the value, of one token and head, its scale included."""
    scale_bytes = _SCALE_BYTES if dtype in _WITH_SCALES else 0
    return head_dim * _ELEMENT_BITS[dtype] // 8 + scale_bytes
