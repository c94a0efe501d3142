"""Removes key-value heads, each with the query heads that share it.

A group costs what its columns of the output projection lose while the other columns take up what
they can (column_surgeon.py); the cheapest group goes, and the rest is weighed again.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from paredown.compress.cut.column_surgeon import remove_units
from paredown.compress.cut.kept_units import Indices
from paredown.compress.cut.method import Compensation, Fit, Unit
from paredown.compress.cut.widths import check_share, remaining_count
from paredown.errors import UnsupportedError
from paredown.spec.attention import Attention
from paredown.spec.model import ModelSpec

_COMPENSATION = Compensation()


@dataclass(frozen=True, kw_only=True)
class CutHeads:
    """Removes `share` of the key-value heads of each layer with their query heads. Raises
    ConfigError for a share outside [0, 1)."""

    unit: ClassVar[Unit] = "heads"

    share: float
    compensation: Compensation | None = _COMPENSATION

    def __post_init__(self) -> None:
        check_share(self.share)

    def check(self, spec: ModelSpec) -> ModelSpec:
        layers = []
        for layer in spec.layers:
            attention = layer.attention
            num = remaining_count(attention.num_kv_heads, self.share, "key-value heads")
            if attention.norms_span_heads and num != attention.num_kv_heads:
                raise UnsupportedError(
                    "heads cannot be removed from a model whose norms cover all heads at once",
                    seen=f"family {spec.family}",
                    remedy="Remove neurons or layers instead (prune-ffn-25).",
                )
            attention = replace(
                attention, num_kv_heads=num, num_heads=num * attention.num_heads_per_group
            )
            layers.append(replace(layer, attention=attention))
        return replace(spec, layers=tuple(layers))


def choose_heads(cut: CutHeads, fit: Fit, attention: Attention) -> Indices:
    """Returns the key-value heads that stay. `fit` is the output projection's."""
    num = attention.num_kv_heads
    num_removed = num - remaining_count(num, cut.share, "key-value heads")
    if num_removed == 0 or fit.is_dead:
        return np.arange(num - num_removed)
    damp = (cut.compensation or _COMPENSATION).damp
    weight_OI = fit.weight_OI
    if fit.has_targets:
        weight_OI = fit.solved(np.arange(weight_OI.shape[1]), damp)
    return remove_units(weight_OI, fit.hessian_II, num, num_removed, damp).kept_U.numpy()
