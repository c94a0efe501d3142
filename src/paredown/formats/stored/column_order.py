"""Columns whose groups do not lie side by side (GPTQ with act-order, arXiv 2210.17323).

A tensor `g_idx` [I] gives the group of each column. Where it counts up in equal steps it is
redundant. No kernel takes any other order: the weight is dequantized to its scales' dtype.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paredown.formats.floating import round_to
from paredown.formats.grid_weight import GridWeight, float_weight
from paredown.formats.stored.stored_form import StoredForm
from paredown.formats.stored.tensor_checks import Tensors, bad_tensor, take
from paredown.formats.tensor import STORED_DTYPES
from paredown.spec.weight import ScaleDType, WeightSpec

NOTE = "columns are in an order of their own (act-order), so the weights run dequantized"


@dataclass(frozen=True, kw_only=True)
class Reordered:
    """Reads the tensors with `stored`, as if groups lay side by side, and takes the order from the
    tensor `suffix`."""

    stored: StoredForm
    suffix: str
    scale_dtype: ScaleDType

    @property
    def spec(self) -> WeightSpec:
        return WeightSpec(dtype=self.scale_dtype)

    @property
    def name(self) -> str:
        return self.stored.name

    @property
    def suffixes(self) -> tuple[str, ...]:
        return self.stored.suffixes

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.stored.notes, NOTE)

    def tensor_shapes(self, shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        return self.stored.tensor_shapes(shape)

    def settle(self, tensors: Tensors, shape: tuple[int, int]) -> StoredForm:
        return self

    def decode(self, tensors: Tensors) -> GridWeight:
        weight = self.stored.decode(tensors)
        assert isinstance(weight, GridWeight)
        groups_I = take(tensors, self.suffix, ("I32",), (weight.shape[1],)).array.astype(np.int64)
        values_OI = dequantize_columns(weight, groups_I)
        return float_weight(round_to(values_OI, self.scale_dtype), self.scale_dtype)[0]


def dequantize_columns(
    weight: GridWeight, groups_I: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """Returns [O, I]: (code - zero point) * scale with the group of each column, not rounded."""
    assert weight.scales_OG is not None
    codes_OI = weight.values_OI.astype(np.float32)
    if weight.zero_points_OG is None:
        codes_OI -= np.float32(1 << (weight.spec.bits - 1))
    else:
        codes_OI -= weight.zero_points_OG[:, groups_I]
    codes_OI *= weight.scales_OG[:, groups_I]
    return codes_OI


def settle_order(
    form: StoredForm, tensors: Tensors, *, suffix: str, scale_suffix: str, num_columns: int
) -> StoredForm:
    """Returns `form` itself if its groups lie side by side, else a `Reordered` form. Raises
    CheckpointError for groups that do not exist."""
    groups_I = take(tensors, suffix, ("I32",), (num_columns,)).array.astype(np.int64)
    size = form.spec.group_size or num_columns
    num_groups = -(-num_columns // size)
    if groups_I.min() < 0 or groups_I.max() >= num_groups:
        seen = f"{groups_I.min()} to {groups_I.max()}"
        raise bad_tensor(suffix, f"names groups beyond 0 to {num_groups - 1}", seen)
    if np.array_equal(groups_I, np.arange(num_columns) // size):
        return form
    scale = tensors[scale_suffix]
    if scale.dtype not in STORED_DTYPES:
        raise bad_tensor(scale_suffix, "has the wrong dtype", scale.dtype)
    return Reordered(stored=form, suffix=suffix, scale_dtype=STORED_DTYPES[scale.dtype])
