"""Budget: how long a run trains, in tokens or in minutes."""

import math
from dataclasses import dataclass

from paredown.errors import ConfigError

_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Exactly one of both is set. Minutes count while the run works and end it after the step in
    which they are used up; only a budget of tokens gives the same steps each time. Raises
    ConfigError for both, neither, or numbers that are not positive."""

    num_tokens: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        if (self.num_tokens is None) == (self.minutes is None):
            raise ConfigError(
                "a training needs one budget",
                seen=f"{self.num_tokens} tokens and {self.minutes} minutes",
                remedy="Give a number of tokens or of minutes, and not both.",
            )
        given = self.minutes if self.num_tokens is None else self.num_tokens
        if given is None or not 0 < given < math.inf:
            raise ConfigError(
                "the training has no time",
                seen=given,
                remedy="Give a number of tokens or of minutes above 0.",
            )

    def check(self, step_tokens: int) -> None:
        """Raises ConfigError for fewer tokens than one step of `step_tokens` reads."""
        if self.num_tokens is not None and self.num_tokens < step_tokens:
            raise ConfigError(
                "the training is shorter than one step",
                seen=f"{self.num_tokens:,} tokens, steps of {step_tokens:,}",
                remedy=f"Give at least {step_tokens:,} tokens.",
            )

    def progress(self, num_steps: int, elapsed_s: float, step_tokens: int) -> float:
        """Returns the share of the budget used by that many steps in that many seconds."""
        if self.minutes is not None:
            return min(1.0, elapsed_s / (_SECONDS * self.minutes))
        assert self.num_tokens is not None
        return min(1.0, num_steps / (self.num_tokens // step_tokens))
