"""Pads the weights of a layer's heads to the size in which the native core holds them."""

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import numpy.typing as npt

from paredown.formats.block_weight import BlockWeight
from paredown.formats.grid_weight import GridWeight, float_weight
from paredown.formats.weight import CoreWeight
from paredown.kernels.padded_heads import pad_heads, pad_norm
from paredown.models.checkpoint import Checkpoint
from paredown.spec.layer import LayerSpec
from paredown.spec.roles import CROSS_ROLES, QKV_ROLES

Vector = npt.NDArray[np.float32]
# Linear layers whose rows, and whose columns, are heads.
_OF_ROWS = (*QKV_ROLES, *CROSS_ROLES[:3])
_OF_COLUMNS = ("o", CROSS_ROLES[3])


@dataclass(frozen=True, kw_only=True)
class NativeHeads:
    """The columns of a head in the checkpoint, and in the core (kernels/padded_heads.py)."""

    head_dim: int
    padded: int

    @classmethod
    def of(cls, stored: LayerSpec, held: LayerSpec) -> "NativeHeads":
        return cls(head_dim=stored.attention.head_dim, padded=held.attention.head_dim)

    @property
    def is_padded(self) -> bool:
        return self.padded != self.head_dim

    def weight(self, checkpoint: Checkpoint, role: str, layer: int) -> CoreWeight:
        """Returns the weight of a linear layer. Codes whose columns are heads are dequantized,
        since their groups cannot take columns in between."""
        weight = checkpoint.linear(role, layer)
        if not self.is_padded or role not in (*_OF_ROWS, *_OF_COLUMNS):
            return weight
        if role in _OF_ROWS:
            return self._more_rows(weight)
        if weight.spec.is_quantized:
            weight = float_weight(weight.dequantize(), weight.scale_dtype)[0]
        assert isinstance(weight, GridWeight)
        return self._more_columns(weight)

    def bias(self, checkpoint: Checkpoint, role: str, layer: int) -> Vector | None:
        values = checkpoint.vector(f"{role}.bias", layer)
        if values is None or not self.is_padded or role not in _OF_ROWS:
            return values
        return cast(Vector, pad_heads(values, self.head_dim, self.padded))

    def norm(self, weight: Vector) -> Vector:
        """Returns the weight of a norm over heads."""
        return pad_norm(weight, self.head_dim, self.padded) if self.is_padded else weight

    def _more_columns(self, weight: GridWeight) -> GridWeight:
        return replace(
            weight, values_OI=pad_heads(weight.values_OI, self.head_dim, self.padded, axis=1)
        )

    def _more_rows(self, weight: CoreWeight) -> CoreWeight:
        """Adds rows of zeros. For integers 0 is the middle code. A block of zero bytes has a scale
        of 0, or a code of 0 where its scale is a power of two."""
        if isinstance(weight, BlockWeight):
            wide = pad_heads(weight.rows_OB, self.head_dim, self.padded)
            return replace(weight, rows_OB=cast(npt.NDArray[np.uint8], wide))
        assert isinstance(weight, GridWeight)
        middle = 0
        if weight.spec.is_quantized and weight.spec.dtype != "fp8":
            middle = 1 << (weight.spec.bits - 1)
        sizes = self.head_dim, self.padded
        scales, zeros = weight.scales_OG, weight.zero_points_OG
        return replace(
            weight,
            values_OI=pad_heads(weight.values_OI, *sizes, fill=middle),
            scales_OG=None if scales is None else cast(Vector, pad_heads(scales, *sizes, fill=1)),
            zero_points_OG=None
            if zeros is None
            else cast(npt.NDArray[np.uint8], pad_heads(zeros, *sizes, fill=middle)),
        )
