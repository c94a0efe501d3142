"""Rows of a module that holds several roles (query, key and value; gate and up)."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T", bound=np.generic)


def own_rows(
    sizes: Sequence[int], part: int, num_blocks: int = 1
) -> slice | npt.NDArray[np.integer]:
    """Returns which of the module's rows belong to part `part`. Each of the `num_blocks` equal
    blocks of rows holds all parts one after the other; part i has `sizes[i]` rows in all."""
    block_sizes = [size // num_blocks for size in sizes]
    start = sum(block_sizes[:part])
    if num_blocks == 1:
        return slice(start, start + block_sizes[part])
    rows = np.arange(sum(sizes)).reshape(num_blocks, -1)
    return rows[:, start : start + block_sizes[part]].reshape(-1)


def fused_rows(parts: Sequence[npt.NDArray[T]], num_blocks: int = 1) -> npt.NDArray[T]:
    """Returns the module's rows, joined from those of its parts in order."""
    blocks = [part.reshape(num_blocks, -1, *part.shape[1:]) for part in parts]
    return np.concatenate(blocks, axis=1).reshape(-1, *parts[0].shape[1:])
