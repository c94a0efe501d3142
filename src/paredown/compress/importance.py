"""Importance: how much each column of a linear layer counts, as the mean square of its input."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class ColumnImportance:
    """The sum of squares [I] of `num_rows` inputs of a linear layer."""

    sum_squares_I: Floats
    num_rows: float

    def mean_squares(self) -> Floats | None:
        """The numbers, [I]. None for a layer that saw no input, such as an expert that no token was
        sent to: all its columns count alike."""
        if self.num_rows == 0:
            return None
        return (self.sum_squares_I / np.float32(self.num_rows)).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class Importance:
    """`modules` by the names of linear modules, the table of embeddings where it is the output
    layer too; `text` says what was read, `num_windows` and `num_tokens` how much of it; `notes`
    what of a file is not used."""

    modules: Mapping[str, ColumnImportance]
    text: str
    num_windows: int
    num_tokens: int
    notes: tuple[str, ...] = ()
