"""Machines whose steps take what one says."""

from dataclasses import dataclass

from paredown.cost.step_cost import StepLoad


@dataclass(frozen=True)
class PerToken:
    """A second for each token, and `fixed` for each step."""

    fixed: float = 0.0

    def step_s(self, step: StepLoad) -> float:
        return self.fixed + step.num_tokens
