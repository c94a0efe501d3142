"""KVSpec: how keys and values are kept."""

from dataclasses import dataclass
from typing import Literal, get_args

from paredown.errors import ConfigError

KVDType = Literal["bf16", "fp32", "int8", "int4"]
# As a checkpoint may ask for them: with a scale for each token and head as it comes, or with one
# for a layer that was calibrated and is stored.
KVFormat = Literal["int8", "int4", "int8-static", "fp8-static"]
KV_DTYPES: tuple[KVDType, ...] = get_args(KVDType)

_ELEMENT_BITS: dict[KVDType, int] = {"bf16": 16, "fp32": 32, "int8": 8, "int4": 4}
_SCALE_BYTES = 2  # bf16, one per token and head for its keys and one for its values

# The native attention kernel works on 16 keys at once and stores keys transposed inside a page.
PAGE_SIZE = 16


@dataclass(frozen=True, kw_only=True)
class KVSpec:
    """Pages of `PAGE_SIZE` tokens, `num_pages` of them, shared by all layers of a model."""

    num_pages: int
    dtype: KVDType = "bf16"

    def __post_init__(self) -> None:
        if self.dtype not in KV_DTYPES:
            raise ConfigError(
                "unknown format of keys and values",
                seen=self.dtype,
                remedy=f"Use one of {', '.join(KV_DTYPES)}.",
            )

    @property
    def num_tokens(self) -> int:
        return self.num_pages * PAGE_SIZE

    def page_bytes(self, num_layers: int, num_kv_heads: int, head_dim: int) -> int:
        """Bytes of one page over all layers, keys and values and, for integers, their scales."""
        token_bytes = head_dim * _ELEMENT_BITS[self.dtype] // 8
        if self.dtype in ("int8", "int4"):
            token_bytes += _SCALE_BYTES
        return 2 * num_layers * num_kv_heads * PAGE_SIZE * token_bytes
