"""whole: every token's logarithm of its probability, f32 [N targets, V]: four bytes a token of the
vocabulary, for small vocabularies and short texts."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from paredown.distill.chunked_logits import chunk_rows
from paredown.distill.teacher import LogProbabilities
from paredown.distill.teacher_logits.keep import Bytes, checked_length

_VALUES = np.dtype("<f4")


@dataclass(frozen=True, kw_only=True)
class Whole:
    """Implements Keep."""

    @property
    def name(self) -> str:
        return "whole"

    @property
    def is_positive(self) -> bool:
        return True

    @property
    def is_linear(self) -> bool:
        return False

    @property
    def rule(self) -> str:
        return "nothing is missing"

    def num_exact(self, vocab_size: int) -> int:
        return vocab_size

    def check(self, vocab_size: int) -> None:
        """Any vocabulary can be kept."""

    def least_bytes(self, num_targets: int, vocab_size: int) -> int:
        return num_targets * vocab_size * _VALUES.itemsize

    def encode(
        self,
        known: LogProbabilities,
        num_targets: int,
        vocab_size: int,
        random: np.random.Generator,
    ) -> bytes:
        step = chunk_rows(vocab_size)
        chunks = (
            known(slice(start, min(start + step, num_targets)))
            for start in range(0, num_targets, step)
        )
        return b"".join(chunk.float().numpy().astype(_VALUES).tobytes() for chunk in chunks)

    def decode(self, data: Bytes, num_targets: int, vocab_size: int) -> LogProbabilities:
        checked_length(data, self.least_bytes(num_targets, vocab_size))
        flat = np.frombuffer(data, _VALUES, num_targets * vocab_size)
        log_p_NV = flat.reshape(num_targets, vocab_size)

        def log_probabilities(rows: slice) -> Tensor:
            return torch.from_numpy(log_p_NV[rows].astype(np.float32))

        return log_probabilities
