"""The calibration text, as tokens."""

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """`windows_NT` has N windows of T tokens. `source` says in reports where they come from.

    With `true_sequential` the linear layers of a transformer layer see the quantized linear layers
    before them in that layer, not only earlier layers (GPTQ's --true-sequential).
    """

    windows_NT: npt.NDArray[np.int64]
    source: str
    true_sequential: bool = True

    @property
    def num_sequences(self) -> int:
        return int(self.windows_NT.shape[0])

    @property
    def num_tokens(self) -> int:
        """The length of a window."""
        return int(self.windows_NT.shape[1])

    @property
    def digest(self) -> str:
        text = hashlib.sha256(np.ascontiguousarray(self.windows_NT, "<i8").tobytes())
        return f"{self.windows_NT.shape} {self.true_sequential} {text.hexdigest()}"
