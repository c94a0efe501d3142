"""TrainConfig: how a model is trained, whatever it learns from."""

from dataclasses import dataclass, field
from pathlib import Path

from paredown.distill.adamw import AdamWConfig
from paredown.distill.arithmetic import Arithmetic, choose_arithmetic
from paredown.distill.budget import Budget
from paredown.distill.schedule import Schedule
from paredown.errors import ConfigError
from paredown.spec.device import Device


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A budget and the numbers of a run. Raises ConfigError for numbers out of range.

    `num_tokens`, `minutes`   the budget, one of both (budget.py)
    `learning_rate`           the highest one; it falls to `final_learning_rate` (schedule.py)
    `warmup_share`            the share of the run in which it rises
    `batch_tokens`            tokens of a step, rounded down to whole rows, at least one
    `device`                  where it is computed
    `arithmetic`              of products; None is the fastest of the device
    `num_threads`             None is all cores
    `seed`                    of the order of the rows
    `save_every_s`            after so many seconds the run is saved, and less often where that
                              takes long; 0 saves it after each step
    `log`                     a CSV file of the steps, if any
    """

    num_tokens: int | None = None
    minutes: float | None = None
    learning_rate: float = 3e-4
    final_learning_rate: float = 3e-5
    warmup_share: float = 0.05
    batch_tokens: int = 4096
    optimizer: AdamWConfig = field(default_factory=AdamWConfig)
    device: Device = "cpu"
    arithmetic: Arithmetic | None = None
    num_threads: int | None = None
    seed: int = 0
    save_every_s: float = 120.0
    log: Path | None = None

    def __post_init__(self) -> None:
        _ = self.budget, self.schedule
        if self.batch_tokens < 1 or self.seed < 0 or not self.save_every_s >= 0:
            raise ConfigError(
                "a number of the training is out of range",
                seen=f"batch of {self.batch_tokens} tokens, seed {self.seed}, saved every "
                f"{self.save_every_s:g} s",
                remedy="Give a batch of at least one token, and the others from 0.",
            )

    @property
    def budget(self) -> Budget:
        return Budget(num_tokens=self.num_tokens, minutes=self.minutes)

    @property
    def schedule(self) -> Schedule:
        return Schedule(
            learning_rate=self.learning_rate,
            final_learning_rate=self.final_learning_rate,
            warmup_share=self.warmup_share,
        )

    @property
    def chosen_arithmetic(self) -> Arithmetic:
        return self.arithmetic or choose_arithmetic(self.device)

    def step_rows(self, row_tokens: int) -> int:
        """Returns how many rows of `row_tokens` tokens a step reads."""
        return max(1, self.batch_tokens // row_tokens)

    def fingerprint(self) -> str:
        """Returns what a run must have in common with one that it resumes."""
        return repr(
            (
                self.budget,
                self.schedule,
                self.batch_tokens,
                self.optimizer,
                self.chosen_arithmetic,
                self.device,
                self.seed,
            )
        )
