"""Judge: looks at a student on rows that it is not trained on, and keeps the weights that predict
them best."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from paredown.distill.rows import BatchRows
from paredown.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """`rows` to judge by, at the beginning, after each `every_share` of the budget and at the end.
    Training ends after `patience` looks without a better one; the best weights are the result.
    Raises ConfigError for numbers out of range."""

    rows: BatchRows
    patience: int = 3
    every_share: float = 0.1

    def __post_init__(self) -> None:
        if self.patience < 1 or not 0 < self.every_share <= 1:
            raise ConfigError(
                "a student cannot be judged like that",
                seen=f"patience {self.patience}, after each {self.every_share:g} of the run",
                remedy="Give a patience of at least 1 and a share above 0, up to 1.",
            )


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """`loss` is the mean over the targets of the held-out rows, after that many steps."""

    step: int
    num_tokens: int
    loss: float


def best_of(judgements: Sequence[Judgement]) -> Judgement | None:
    """Returns the first look with the lowest loss; one that is no number is never better."""
    return min(judgements, key=_order, default=None)


def _order(judgement: Judgement) -> float:
    return judgement.loss if math.isfinite(judgement.loss) else math.inf


class Judge:
    """`mean_loss` computes the loss of the rows with the parameters as they are."""

    def __init__(
        self,
        held_out: HeldOut,
        parameters: Mapping[str, Tensor],
        mean_loss: Callable[[BatchRows], float],
    ) -> None:
        self._held_out = held_out
        self._parameters = parameters
        self._mean_loss = mean_loss
        self._best: dict[str, Tensor] = {}
        self._looked_at = 0.0
        self.judgements: list[Judgement] = []

    def look(self, step: int, num_tokens: int, progress: float) -> None:
        """Judges the student unless it was judged at this step or lately."""
        if self.judgements:
            steps = math.floor(progress / self._held_out.every_share)
            before = math.floor(self._looked_at / self._held_out.every_share)
            if self.judgements[-1].step == step or (steps == before and progress < 1):
                return
        with torch.random.fork_rng(devices=[]):
            loss = self._mean_loss(self._held_out.rows)
        now = Judgement(step=step, num_tokens=num_tokens, loss=loss)
        self.judgements.append(now)
        self._looked_at = progress
        if best_of(self.judgements) is now:
            self._best = {
                name: parameter.detach().clone() for name, parameter in self._parameters.items()
            }

    @property
    def is_over(self) -> bool:
        """Whether so many looks in a row were no better than one before."""
        best = best_of(self.judgements)
        if best is None:
            return False
        return len(self.judgements) - 1 - self.judgements.index(best) >= self._held_out.patience

    def restore_best(self) -> None:
        """Gives the parameters the best weights."""
        with torch.no_grad():
            for name, values in self._best.items():
                self._parameters[name].copy_(values)

    def state(self) -> dict[str, Any]:
        return {
            "judgements": [asdict(one) for one in self.judgements],
            "looked_at": self._looked_at,
            "best": self._best,
        }

    def load(self, state: dict[str, Any]) -> None:
        self.judgements = [Judgement(**one) for one in state["judgements"]]
        self._looked_at = state["looked_at"]
        self._best = state["best"]
