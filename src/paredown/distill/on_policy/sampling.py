"""Sampling: which prompts a step goes on from, and for how long."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paredown.distill.arithmetic import Arithmetic
from paredown.distill.on_policy.prompts import Prompts
from paredown.distill.row_order import RowOrder
from paredown.errors import ConfigError
from paredown.spec.model import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """A step goes on `num_each` times from each of `num_prompts` prompts. Raises ConfigError for
    numbers out of range.

    `prompts`         are read in one shuffled pass after another
    `max_new_tokens`  the most tokens of an answer
    `stop_ids`        tokens that end an answer, and belong to it
    `temperature`     of the distribution that is drawn from
    `seed`            of the order and the draws, together with the number of the step
    """

    prompts: Prompts
    max_new_tokens: int
    stop_ids: frozenset[int]
    arithmetic: Arithmetic
    num_prompts: int = 16
    num_each: int = 1
    temperature: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        counts = self.num_prompts, self.num_each, self.max_new_tokens
        if min(counts) < 1 or self.seed < 0 or not 0 < self.temperature < float("inf"):
            raise ConfigError(
                "a number of the sampling is out of range",
                seen=f"{counts[0]} prompts, {counts[1]} answers each of up to {counts[2]} tokens, "
                f"temperature {self.temperature:g}, seed {self.seed}",
                remedy="Give counts of at least 1, a temperature above 0 and a seed from 0.",
            )

    @property
    def num_rows(self) -> int:
        return self.num_prompts * self.num_each

    @property
    def row_tokens(self) -> int:
        """The most tokens of a prompt and its answer."""
        return self.prompts.num_tokens + self.max_new_tokens

    @property
    def step_tokens(self) -> int:
        return self.num_rows * self.row_tokens

    def check(self, spec: ModelSpec) -> None:
        """Raises ConfigError for texts that are longer than the model reads."""
        if self.row_tokens > spec.max_positions:
            raise ConfigError(
                "prompts and answers are longer than the model's context",
                seen=f"{self.prompts.num_tokens:,} + {self.max_new_tokens:,} tokens, "
                f"{spec.max_positions:,} positions",
                remedy="Give shorter prompts, or fewer new tokens.",
            )

    def check_own_distribution(self) -> None:
        """Raises ConfigError for draws from another distribution than the model's."""
        if self.temperature != 1:
            raise ConfigError(
                "policy gradients need draws from the model's own distribution",
                seen=f"temperature {self.temperature:g}",
                remedy="Give a temperature of 1.",
            )

    def step_prompts(self, step: int) -> list[tuple[int, ...]]:
        """Returns the prompt of each row of a step."""
        order = RowOrder(num_rows=self.prompts.num_prompts, seed=self.seed)
        chosen = order.rows(step * self.num_prompts, self.num_prompts)
        return [self.prompts.token_ids[index] for index in np.repeat(chosen, self.num_each)]

    def draws(self, step: int) -> npt.NDArray[np.float64]:
        """Returns numbers from 0 to below 1, one for each new token of each row."""
        random = np.random.default_rng([self.seed, step])
        return random.random((self.num_rows, self.max_new_tokens))
