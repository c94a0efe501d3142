"""top-K: the K likeliest tokens of each distribution with their probabilities, and a rule for the
mass of the others.

    spread        they share it evenly, as one bucket of equal tokens
    renormalized  they get nothing; the K tokens are divided by their sum

Both are biased. Spread keeps the K probabilities as they are, and leaves each token possible.

    ids u16 or u32 [N targets, K] | logarithms of probabilities f32 [N targets, K]
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from paredown.distill.chunked_logits import chunk_rows
from paredown.distill.teacher import LogProbabilities
from paredown.distill.teacher_logits.keep import Bytes, checked_ids, checked_length, id_dtype
from paredown.errors import ConfigError

MissingMass = Literal["spread", "renormalized"]
_VALUES = np.dtype("<f4")
# Rounding may leave less than nothing; no token becomes impossible by that.
_LEAST_MASS = 2.0**-23


@dataclass(frozen=True, kw_only=True)
class Top:
    """Implements Keep. Raises ConfigError without a token."""

    num_tokens: int
    missing_mass: MissingMass = "spread"

    def __post_init__(self) -> None:
        if self.num_tokens < 1:
            raise ConfigError(
                "nothing is kept of the teacher's distribution",
                seen=self.num_tokens,
                remedy="Keep at least one token; top-64 is a good number.",
            )

    @property
    def name(self) -> str:
        ending = "" if self.missing_mass == "spread" else f"-{self.missing_mass}"
        return f"top-{self.num_tokens}{ending}"

    @property
    def is_positive(self) -> bool:
        return self.missing_mass == "spread"

    @property
    def is_linear(self) -> bool:
        return False

    @property
    def rule(self) -> str:
        return self.missing_mass

    def num_exact(self, vocab_size: int) -> int:
        return self.num_tokens if self.missing_mass == "spread" else 0

    def check(self, vocab_size: int) -> None:
        if self.num_tokens > vocab_size:
            raise ConfigError(
                "the teacher does not have so many tokens",
                seen=f"{self.name} of {vocab_size:,} tokens",
                remedy="Keep fewer, or the whole distribution (whole).",
            )

    def least_bytes(self, num_targets: int, vocab_size: int) -> int:
        each = id_dtype(vocab_size).itemsize + _VALUES.itemsize
        return num_targets * self.num_tokens * each

    def encode(
        self,
        known: LogProbabilities,
        num_targets: int,
        vocab_size: int,
        random: np.random.Generator,
    ) -> bytes:
        ids, values = [], []
        step = chunk_rows(vocab_size)
        for start in range(0, num_targets, step):
            log_p_NV = known(slice(start, min(start + step, num_targets)))
            log_p_NK, tokens_NK = log_p_NV.topk(self.num_tokens, dim=-1)
            ids.append(tokens_NK.numpy().astype(id_dtype(vocab_size)).tobytes())
            values.append(log_p_NK.float().numpy().astype(_VALUES).tobytes())
        return b"".join((*ids, *values))

    def decode(self, data: Bytes, num_targets: int, vocab_size: int) -> LogProbabilities:
        ids_dtype = id_dtype(vocab_size)
        checked_length(data, self.least_bytes(num_targets, vocab_size))
        shape, count = (num_targets, self.num_tokens), num_targets * self.num_tokens
        ids = checked_ids(np.frombuffer(data, ids_dtype, count), vocab_size)
        values = np.frombuffer(data, _VALUES, count, count * ids_dtype.itemsize)
        tokens_NK = torch.from_numpy(ids).view(shape)
        log_p_NK = torch.from_numpy(values.astype(np.float32)).view(shape)

        def log_probabilities(rows: slice) -> Tensor:
            return self._whole(log_p_NK[rows], tokens_NK[rows], vocab_size)

        return log_probabilities

    def _whole(self, log_p_NK: Tensor, tokens_NK: Tensor, vocab_size: int) -> Tensor:
        """Returns the distribution [N, V] that the rule makes."""
        num_others = vocab_size - self.num_tokens
        log_p_NV = torch.full((len(log_p_NK), vocab_size), -torch.inf, device="cpu")
        if self.missing_mass == "renormalized":
            log_p_NK = log_p_NK.log_softmax(-1)
        elif num_others:
            mass_N = (1 - log_p_NK.double().exp().sum(-1)).clamp(min=_LEAST_MASS)
            log_p_NV[:] = (mass_N.log() - math.log(num_others)).float()[:, None]
        return log_p_NV.scatter_(-1, tokens_NK, log_p_NK)
