"""KVSpec: how keys and values are kept."""

from dataclasses import dataclass
from typing import Literal

KVDType = Literal["bf16", "fp32"]

# The native attention kernel works on 16 keys at once and stores keys transposed inside a page.
PAGE_SIZE = 16


@dataclass(frozen=True, kw_only=True)
class KVSpec:
    """Pages of `PAGE_SIZE` tokens, `num_pages` of them, shared by all layers of a model."""

    num_pages: int
    dtype: KVDType = "bf16"

    @property
    def num_tokens(self) -> int:
        return self.num_pages * PAGE_SIZE

    def page_bytes(self, num_layers: int, num_kv_heads: int, head_dim: int) -> int:
        """Bytes of one page over all layers, keys and values."""
        element_bytes = 2 if self.dtype == "bf16" else 4
        return 2 * num_layers * num_kv_heads * head_dim * PAGE_SIZE * element_bytes
