"""Rows of a module that holds several roles (GPT-2's and GPT-NeoX's query, key and value)."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from paredown.models.families.family import LinearSource

T = TypeVar("T", bound=np.generic)


def own_rows(values: npt.NDArray[T], source: LinearSource, num_heads: int) -> npt.NDArray[T]:
    """The role's rows, or numbers of a vector, of all that the module has."""
    if source.num_parts == 1:
        return values
    return _by_part(values, source, num_heads)[:, source.part].reshape(-1, *values.shape[1:])


def fused_rows(
    parts: Sequence[npt.NDArray[T]], source: LinearSource, num_heads: int
) -> npt.NDArray[T]:
    """What the module has, from the rows of its roles in the order of their parts."""
    if source.num_parts == 1:
        return parts[0]
    num_blocks = num_heads if source.by_head else 1
    blocks = [part.reshape(num_blocks, -1, *part.shape[1:]) for part in parts]
    return np.concatenate(blocks, axis=1).reshape(-1, *parts[0].shape[1:])


def _by_part(values: npt.NDArray[T], source: LinearSource, num_heads: int) -> npt.NDArray[T]:
    num_blocks = num_heads if source.by_head else 1
    return values.reshape(num_blocks, source.num_parts, -1, *values.shape[1:])
