"""The plan of a run in active time: learning rate and sequence length."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Warm up, stay, decay linearly to zero; the last part of the decay reads whole contexts.

    `progress` is the share of the run's budget of active seconds that is used. A plan in time, not
    in steps, ends on time whatever else uses the machine; a later start with another budget
    re-plans.
    """

    warmup_steps: int = 50
    decay_share: float = 0.7
    long_share: float = 0.15
    short_length: int = 512
    long_length: int = 2048

    def rate_factor(self, progress: float, step: int) -> float:
        """Share of the full learning rate, in [0, 1]."""
        warm = min(1.0, (step + 1) / self.warmup_steps)
        return max(0.0, min(warm, (1.0 - progress) / self.decay_share))

    def length(self, progress: float) -> int:
        """Tokens in one training window."""
        return self.long_length if progress >= 1.0 - self.long_share else self.short_length


@dataclass(kw_only=True)
class ActiveClock:
    """Seconds spent training. A process that was stopped for a while does not count the stop."""

    budget: float
    elapsed: float = 0.0
    longest_step: float = 30.0

    def add(self, seconds: float) -> None:
        self.elapsed += min(seconds, self.longest_step)

    @property
    def progress(self) -> float:
        return self.elapsed / self.budget
