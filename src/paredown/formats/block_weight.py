"""BlockWeight: rows of super-blocks, with codes and scales as stored. NumPy only."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from paredown.spec.weight import ScaleDType, SuperBlock, WeightSpec

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

# Values converted at once; this limits the temporary floats to some tens of megabytes.
_CHUNK_VALUES = 1 << 21


@dataclass(frozen=True, kw_only=True)
class BlockWeight:
    """A weight of O output rows and I input columns in whole super-blocks of B bytes.

    rows_OB      the bytes, block by block, as the core packs them
    to_floats    returns the values of N blocks, [N, bytes of one], in order
    scale_dtype  the dtype in which a table of embeddings is held
    """

    spec: WeightSpec
    rows_OB: Bytes
    to_floats: Callable[[Bytes], Floats]
    scale_dtype: ScaleDType = "fp16"

    @property
    def shape(self) -> tuple[int, int]:
        num_rows, num_bytes = self.rows_OB.shape
        return num_rows, num_bytes // self._block.num_bytes * self._block.num_columns

    @property
    def input_scale(self) -> None:
        """Always None: inputs have a dynamic scale for each super-block."""
        return

    def with_input_scale(self, scale: float) -> Self:
        raise AssertionError("a weight in super-blocks has no stored scale for its inputs")

    def for_core(self) -> Self:
        return self

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        return {"values": np.ascontiguousarray(self.rows_OB)}

    def rows(self, chosen: slice | npt.NDArray[np.integer]) -> Self:
        return replace(self, rows_OB=self.rows_OB[chosen])

    def stacked(self, others: Sequence[Self]) -> Self:
        if not others:
            return self
        return replace(self, rows_OB=np.concatenate([one.rows_OB for one in (self, *others)]))

    def dequantize(self) -> Floats:
        """Returns [O, I] in float32, computed some rows at a time."""
        values_OI = np.empty(self.shape, np.float32)
        chunk_rows = max(1, _CHUNK_VALUES // max(1, self.shape[1]))
        for start in range(0, len(values_OI), chunk_rows):
            rows = slice(start, start + chunk_rows)
            blocks_NB = np.ascontiguousarray(self.rows_OB[rows]).reshape(-1, self._block.num_bytes)
            values_OI[rows] = self.to_floats(blocks_NB).reshape(values_OI[rows].shape)
        return values_OI

    def at_work(self) -> Floats:
        """Returns [O, I]. The core applies scales in float32, so nothing else is rounded."""
        return self.dequantize()

    @property
    def _block(self) -> SuperBlock:
        block = self.spec.traits.block
        assert block is not None, self.spec
        return block
