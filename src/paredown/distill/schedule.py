"""Schedule: the learning rate over a run, a linear warm-up and then a cosine (arXiv 1608.03983)."""

import math
from dataclasses import dataclass

from paredown.errors import ConfigError

# The least progress that the warm-up counts: in a run of minutes, a first step has none yet.
_FIRST = 1e-3


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The rate rises to `learning_rate` over the first `warmup_share` of the run and falls to
    `final_learning_rate` at its end. Raises ConfigError for rates or a share out of range."""

    learning_rate: float
    final_learning_rate: float
    warmup_share: float

    def __post_init__(self) -> None:
        peak, last = self.learning_rate, self.final_learning_rate
        if not (0 < peak < math.inf and 0 <= last <= peak):
            raise ConfigError(
                "the learning rate cannot be trained with",
                seen=f"{peak:g}, falling to {last:g}",
                remedy="Give a rate above 0, and a final rate from 0 up to it.",
            )
        if not 0 <= self.warmup_share < 1:
            raise ConfigError(
                "the warm-up is no share of the run",
                seen=f"{self.warmup_share:g}",
                remedy="Give a number from 0 to below 1.",
            )

    def rate(self, progress: float) -> float:
        """Returns the learning rate where `progress`, from 0 to 1, of the run is done."""
        if progress < self.warmup_share:
            return self.learning_rate * max(progress, _FIRST) / self.warmup_share
        left = 1 - (min(progress, 1.0) - self.warmup_share) / (1 - self.warmup_share)
        wave = 0.5 * (1 - math.cos(math.pi * left))
        return self.final_learning_rate + (self.learning_rate - self.final_learning_rate) * wave
