"""Pages: keys and values of all layers in torch tensors, a page at a time.

Shapes: P pages, K key-value heads, S places of a page, C columns of a head, R tokens, N pages of a
sequence.
"""

import torch
from torch import Tensor

from paredown.errors import UnsupportedError
from paredown.spec.kv import PAGE_SIZE, KVDType, KVSpec
from paredown.spec.model import ModelSpec

_TORCH_DTYPES: dict[KVDType, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Pages:
    """Two tensors [P, K, S, C] for each layer, keys as they are after their rotation.

    Values are finite, whatever was computed: a key that is masked has a weight of 0, and 0 times
    anything finite is 0.
    """

    def __init__(self, spec: ModelSpec, kv: KVSpec, device: str) -> None:
        self._num_pages = kv.num_pages
        self._keys, self._values = list[Tensor](), list[Tensor]()
        for layer, dtype in zip(spec.layers, kv.layer_dtypes(spec.num_layers), strict=True):
            heads = layer.attention
            shape = (kv.num_pages, heads.num_kv_heads, PAGE_SIZE, heads.head_dim)
            for tensors in (self._keys, self._values):
                tensors.append(torch.zeros(shape, dtype=_TORCH_DTYPES[dtype], device=device))

    def write(
        self, layer: int, pages_R: Tensor, places_R: Tensor, k_RKC: Tensor, v_RKC: Tensor
    ) -> None:
        """Keeps the keys and values of tokens, each at a place of a page."""
        keys, values = self._keys[layer], self._values[layer]
        keys[pages_R, :, places_R] = k_RKC.to(keys.dtype)
        values[pages_R, :, places_R] = v_RKC.to(values.dtype).nan_to_num()

    def read(self, layer: int, pages_N: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [K, N * S, C] of these pages, one behind the other, in float32."""
        return _joined(self._keys[layer], pages_N), _joined(self._values[layer], pages_N)

    def copy(self, pairs: list[tuple[int, int]]) -> None:
        """See Executor.copy_pages. Raises ValueError."""
        for page in (page for pair in pairs for page in pair):
            if not 0 <= page < self._num_pages:
                raise ValueError(f"page {page} is unknown")
        for tensor in (*self._keys, *self._values):
            for source, target in pairs:
                tensor[target] = tensor[source]


def check_kept(kv: KVSpec, num_layers: int) -> None:
    """Raises UnsupportedError for a format that pages here do not have."""
    unknown = [one for one in kv.layer_dtypes(num_layers) if one not in _TORCH_DTYPES]
    if unknown:
        raise UnsupportedError(
            "the torch executor does not keep keys and values in this format",
            seen=unknown[0],
            remedy=f"Use --kv-dtype {' or '.join(_TORCH_DTYPES)}, or --executor native.",
        )


def _joined(tensor: Tensor, pages_N: Tensor) -> Tensor:
    """[K, N * S, C]"""
    return tensor[pages_N].float().transpose(0, 1).flatten(1, 2)
