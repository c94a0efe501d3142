"""Heads of any size as the native core holds them: padded with columns of zeros to whole lanes.

The columns behind a head's own are 0 in queries, keys and values, and so are the columns of the
output projection that read them. So scores and outputs are those of the true heads; their scale,
their turns and what their norms divide by stay those of the true size.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paredown.errors import UnsupportedError
from paredown.spec.attention import Attention
from paredown.spec.layer import LayerSpec
from paredown.spec.model import ModelSpec
from paredown.spec.norm import Norm

LANES = 16


def with_padded_heads(spec: ModelSpec) -> ModelSpec:
    """The model that the core runs in the place of `spec`: itself where all heads are whole lanes.
    Raises UnsupportedError for LayerNorms of padded heads, whose mean would see the zeros."""
    return replace(spec, layers=tuple(map(_padded_layer, spec.layers)))


def score_scale(attention: Attention) -> float:
    """The scale of scores, as float32 has it: rounded twice where it follows from the
    size of a head, because 1 / sqrt in float64 is another number for some sizes."""
    if attention.scale is not None:
        return attention.scale
    return float(np.float32(1.0) / np.sqrt(np.float32(attention.head_dim)))


def pad_heads(
    values: npt.NDArray[np.generic], head_dim: int, padded: int, fill: int = 0, axis: int = 0
) -> npt.NDArray[np.generic]:
    """The same array with `fill` behind each head's entries along `axis`."""
    shape = values.shape
    split = values.reshape(*shape[:axis], -1, head_dim, *shape[axis + 1 :])
    widths = [(0, 0)] * split.ndim
    widths[axis + 1] = (0, padded - head_dim)
    wide = np.pad(split, widths, constant_values=fill)
    return np.ascontiguousarray(wide.reshape(*shape[:axis], -1, *shape[axis + 1 :]))


def pad_norm(
    weight: npt.NDArray[np.float32], head_dim: int, padded: int
) -> npt.NDArray[np.float32]:
    """The weight of a norm over padded heads. Its sum of squares is divided by more columns than
    there are, which the weight makes good, as the epsilon of `with_padded_heads` does."""
    wide: npt.NDArray[np.float32] = pad_heads(
        weight * np.float32(np.sqrt(head_dim / padded)), head_dim, padded
    ).astype(np.float32, copy=False)
    return wide


def _padded_layer(layer: LayerSpec) -> LayerSpec:
    attention = layer.attention
    head_dim = attention.head_dim
    padded = -(-head_dim // LANES) * LANES
    if padded == head_dim:
        return layer
    norms = layer.norms
    for norm in (norms.q, norms.k):
        if norm is not None and norm.kind != "rms":
            raise UnsupportedError(
                "the native executor does not pad heads that have a LayerNorm",
                seen=f"head_dim {head_dim}, which is no multiple of {LANES}",
                remedy="Run this model with the PyTorch decoder: --executor torch, or "
                'LLM(executor="torch").',
            )
    rotary = attention.rotary
    if rotary is not None:
        # Half a column more: its product with the size is rounded down to the columns again.
        share = (rotary.rotated_columns(head_dim) + 0.5) / padded
        rotary = replace(rotary, share=share)
    wide = replace(attention, head_dim=padded, rotary=rotary, scale=score_scale(attention))
    ratio = head_dim / padded
    norms = replace(norms, q=_spread(norms.q, ratio), k=_spread(norms.k, ratio))
    return replace(layer, attention=wide, norms=norms)


def _spread(norm: Norm | None, ratio: float) -> Norm | None:
    return None if norm is None else replace(norm, eps=norm.eps * ratio)
