"""Rows of a module that holds several roles (GPT-2's and GPT-NeoX's query, key and value)."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from paredown.models.families.family import LinearModule

T = TypeVar("T", bound=np.generic)


def own_rows(
    source: LinearModule, num_rows: int, num_heads: int
) -> slice | npt.NDArray[np.integer]:
    """Which of the module's rows are the role's."""
    size = num_rows // source.num_parts
    if not source.by_head:
        return slice(source.part * size, (source.part + 1) * size)
    rows = np.arange(num_rows).reshape(num_heads, source.num_parts, -1)
    return rows[:, source.part].reshape(-1)


def fused_rows(
    parts: Sequence[npt.NDArray[T]], source: LinearModule, num_heads: int
) -> npt.NDArray[T]:
    """What the module has, from the rows of its roles in the order of their parts."""
    num_blocks = num_heads if source.by_head else 1
    blocks = [part.reshape(num_blocks, -1, *part.shape[1:]) for part in parts]
    return np.concatenate(blocks, axis=1).reshape(-1, *parts[0].shape[1:])
