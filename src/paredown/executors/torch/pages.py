"""Pages: the keys and values of all layers in torch tensors, divided into pages.

Shapes: 2 keys and values, K key-value heads, P pages, S places of a page, C columns of a head, R
tokens, N pages of a sequence.
"""

import torch
from torch import Tensor

from paredown.errors import UnsupportedError
from paredown.spec.kv import PAGE_SIZE, KVDType, KVSpec
from paredown.spec.model import ModelSpec

_TORCH_DTYPES: dict[KVDType, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Pages:
    """Holds a tensor [2, K, P, S, C] for each layer, with rotated keys, and values.

    Values are always finite: a masked key has weight 0, and 0 times a finite number is 0.
    """

    def __init__(self, spec: ModelSpec, kv: KVSpec, device: str) -> None:
        self._num_pages = kv.num_pages
        self._layers = list[Tensor]()
        for layer, dtype in zip(spec.layers, kv.layer_dtypes(spec.num_layers), strict=True):
            heads = layer.attention
            shape = (2, heads.num_kv_heads, kv.num_pages, PAGE_SIZE, heads.head_dim)
            self._layers.append(torch.zeros(shape, dtype=_TORCH_DTYPES[dtype], device=device))

    def write(self, layer: int, pages_R: Tensor, places_R: Tensor, kv_2KRC: Tensor) -> None:
        """Writes the keys and values of tokens, each to a place of a page."""
        held = self._layers[layer]
        kept_2KRC = kv_2KRC.to(held.dtype, copy=True)
        kept_2KRC[1].nan_to_num_()
        held[:, :, pages_R, places_R] = kept_2KRC

    def read(self, layer: int, pages_N: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the keys and values [K, N * S, C] of these pages, one after another, in
        float32."""
        kv_2KNSC = self._layers[layer].index_select(2, pages_N).float()
        k_KNC, v_KNC = kv_2KNSC.flatten(2, 3)
        return k_KNC, v_KNC

    def copy(self, pairs: list[tuple[int, int]]) -> None:
        """See Executor.copy_pages. Raises ValueError."""
        for page in (page for pair in pairs for page in pair):
            if not 0 <= page < self._num_pages:
                raise ValueError(f"page {page} is unknown")
        for held in self._layers:
            for source, target in pairs:
                held[:, :, target] = held[:, :, source]


def check_kept(kv: KVSpec, num_layers: int) -> None:
    """Raises UnsupportedError for a format that these pages cannot hold."""
    unknown = [one for one in kv.layer_dtypes(num_layers) if one not in _TORCH_DTYPES]
    if unknown:
        raise UnsupportedError(
            "the torch executor does not keep keys and values in this format",
            seen=unknown[0],
            remedy=f"Use --kv-dtype {' or '.join(_TORCH_DTYPES)}, or --executor native.",
        )
