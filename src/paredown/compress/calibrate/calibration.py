"""The calibration text, as tokens."""

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """`windows_NT` has N windows of T tokens. `source` says in reports where they come from.
    For an encoder-decoder `answers_NT` has a decoder's text for each window that the encoder reads;
    these texts may have another length.

    With `true_sequential` the linear layers of a transformer layer see the quantized linear layers
    before them in that layer, not only earlier layers (GPTQ's --true-sequential).
    """

    windows_NT: npt.NDArray[np.int64]
    source: str
    true_sequential: bool = True
    answers_NT: npt.NDArray[np.int64] | None = None

    @property
    def num_sequences(self) -> int:
        return int(self.windows_NT.shape[0])

    @property
    def num_tokens(self) -> int:
        """The length of a window."""
        return int(self.windows_NT.shape[1])

    @property
    def num_answer_tokens(self) -> int:
        """The length of a decoder's text; 0 where there are none."""
        return 0 if self.answers_NT is None else int(self.answers_NT.shape[1])

    @property
    def digest(self) -> str:
        parts = [self.windows_NT] if self.answers_NT is None else [self.windows_NT, self.answers_NT]
        text = hashlib.sha256()
        for part_NT in parts:
            text.update(np.ascontiguousarray(part_NT, "<i8").tobytes())
        shapes = ", ".join(str(part_NT.shape) for part_NT in parts)
        return f"{shapes} {self.true_sequential} {text.hexdigest()}"
