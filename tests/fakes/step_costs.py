"""Machines with given step times."""

from dataclasses import dataclass

from paredown.cost.step_cost import StepLoad


@dataclass(frozen=True)
class PerToken:
    """Takes a second per token, plus `fixed` per step."""

    fixed: float = 0.0

    def step_s(self, step: StepLoad) -> float:
        return self.fixed + step.num_tokens
