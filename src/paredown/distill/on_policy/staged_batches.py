"""StagedBatches: one source for the first steps, then another."""

import math
from dataclasses import dataclass

from paredown.distill.batch import Batch
from paredown.distill.batch_source import BatchSource
from paredown.errors import ConfigError
from paredown.models.decoder.decoder import Decoder


@dataclass(frozen=True, kw_only=True)
class StagedBatches:
    """Implements BatchSource: `first` for `num_first_steps` steps, then `then`, which counts its
    own steps from 0. The budget counts each step as the larger of both."""

    first: BatchSource
    num_first_steps: int
    then: BatchSource

    @property
    def num_rows(self) -> int:
        return math.gcd(self.first.num_rows, self.then.num_rows)

    @property
    def step_tokens(self) -> int:
        return max(self.first.step_tokens, self.then.step_tokens)

    def batch(self, step: int, student: Decoder) -> Batch:
        if step < self.num_first_steps:
            return self.first.batch(step, student)
        return self.then.batch(step - self.num_first_steps, student)


def warmed(
    text: BatchSource, then: BatchSource, share: float, num_tokens: int | None
) -> StagedBatches:
    """Returns `text` for that share of the steps that `num_tokens` allow, and `then` for the rest.
    Raises ConfigError without a number of tokens, which leaves the number of steps open."""
    if num_tokens is None:
        raise ConfigError(
            "a share of the steps needs a number of steps",
            seen=f"--warm-share {share:g} and a budget in minutes",
            remedy="Give the budget in tokens (--tokens), or train twice.",
        )
    num_steps = num_tokens // max(text.step_tokens, then.step_tokens)
    return StagedBatches(first=text, num_first_steps=round(share * num_steps), then=then)
