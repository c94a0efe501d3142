"""MixedBatches: some steps on what a model has sampled, the others on a given text.

GKD draws for each batch whether it is on-policy (arXiv 2306.13649, algorithm 1, lambda).
"""

import math
from dataclasses import dataclass

import numpy as np

from paredown.distill.batch import Batch
from paredown.distill.batch_source import BatchSource
from paredown.errors import ConfigError
from paredown.models.decoder.decoder import Decoder

# Keeps these draws apart from others of the same seed and step.
_STREAM = 1


@dataclass(frozen=True, kw_only=True)
class MixedBatches:
    """Implements BatchSource: `sampled` with the probability `sampled_share`, else `given`. The
    budget counts each step as the larger of both. Raises ConfigError for a share out of range."""

    sampled: BatchSource
    given: BatchSource
    sampled_share: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.sampled_share <= 1:
            raise ConfigError(
                "the share of steps on sampled text is out of range",
                seen=self.sampled_share,
                remedy="Give a share from 0 to 1.",
            )

    @property
    def num_rows(self) -> int:
        return math.gcd(self.sampled.num_rows, self.given.num_rows)

    @property
    def step_tokens(self) -> int:
        return max(self.sampled.step_tokens, self.given.step_tokens)

    def batch(self, step: int, student: Decoder) -> Batch:
        random = np.random.default_rng([self.seed, step, _STREAM])
        source = self.sampled if random.random() < self.sampled_share else self.given
        return source.batch(step, student)
