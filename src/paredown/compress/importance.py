"""Importance: how much each column of a linear layer matters, as the mean square of its input."""

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
        """Returns the mean squares [I]. Returns None for a layer without inputs, such as an expert
        that no token was sent to: all its columns then count alike."""
        if self.num_rows == 0:
            return None
        return (self.sum_squares_I / np.float32(self.num_rows)).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class Importance:
    """`modules` is keyed by the names of linear modules, including the table of embeddings if it
    is also the output layer. `text` names the text, `num_windows` and `num_tokens` its length.
    `notes` say what of a file is unused."""

    modules: Mapping[str, ColumnImportance]
    text: str
    num_windows: int
    num_tokens: int
    notes: tuple[str, ...] = ()
