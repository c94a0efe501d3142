"""Pads heads of any size with zero columns to whole lanes, for the native core.

The padding is 0 in queries, keys and values, and so are the output projection's columns that read
it. Scores and outputs are therefore those of the true heads. The scale, the rotation and the
divisor of norms stay those of the true size.
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
    """Returns the model that the core runs instead of `spec`: `spec` itself where all heads are
    whole lanes. Raises UnsupportedError for LayerNorms over padded heads, whose mean would include
    the zeros."""
    return replace(spec, layers=tuple(map(_padded_layer, spec.layers)))


def score_scale(attention: Attention) -> float:
    """Returns the scale of scores as float32 has it. A scale that follows from the head's size is
    rounded twice, because 1 / sqrt in float64 differs for some sizes."""
    if attention.scale is not None:
        return attention.scale
    return float(np.float32(1.0) / np.sqrt(np.float32(attention.head_dim)))


def pad_heads(
    values: npt.NDArray[np.generic], head_dim: int, padded: int, fill: int = 0, axis: int = 0
) -> npt.NDArray[np.generic]:
    """Returns the array with `fill` after each head's entries along `axis`."""
    shape = values.shape
    split = values.reshape(*shape[:axis], -1, head_dim, *shape[axis + 1 :])
    widths = [(0, 0)] * split.ndim
    widths[axis + 1] = (0, padded - head_dim)
    wide = np.pad(split, widths, constant_values=fill)
    return np.ascontiguousarray(wide.reshape(*shape[:axis], -1, *shape[axis + 1 :]))


def pad_norm(
    weight: npt.NDArray[np.float32], head_dim: int, padded: int
) -> npt.NDArray[np.float32]:
    """Returns the weight of a norm over padded heads. The core divides the sum of squares by
    too many columns; this weight makes up for that, together with the epsilon of
    `with_padded_heads`."""
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
        # Half a column is added, so that the product with the padded size rounds down to the true
        # columns.
        share = (rotary.rotated_columns(head_dim) + 0.5) / padded
        rotary = replace(rotary, share=share)
    wide = replace(attention, head_dim=padded, rotary=rotary, scale=score_scale(attention))
    ratio = head_dim / padded
    norms = replace(norms, q=_spread(norms.q, ratio), k=_spread(norms.k, ratio))
    cross = layer.cross
    if cross is not None:
        cross = replace(cross, head_dim=padded, scale=score_scale(cross))
    return replace(layer, attention=wide, cross=cross, norms=norms)


def _spread(norm: Norm | None, ratio: float) -> Norm | None:
    return None if norm is None else replace(norm, eps=norm.eps * ratio)
