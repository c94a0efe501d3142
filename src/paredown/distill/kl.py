"""Forward KL divergence from the teacher's whole distribution (arXiv 1503.02531, section 2).

    T^2 * sum over the vocabulary of p_T (ln p_T - ln q_T)

p_T and q_T are the teacher's and the student's distribution at the temperature T. The factor keeps
the size of the gradient when T changes.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from paredown.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class KL:
    """Implements TokenLoss. Raises ConfigError unless `temperature` is a positive number."""

    temperature: float = 1.0

    needs_teacher: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.temperature < float("inf"):
            raise ConfigError(
                "the temperature of the teacher's distribution is not a positive number",
                seen=self.temperature,
                remedy="Give a number above 0; 1 is the teacher's own distribution.",
            )

    def losses(self, logits_NV: Tensor, targets_N: Tensor, teacher_NV: Tensor | None) -> Tensor:
        assert teacher_NV is not None
        if self.temperature != 1:
            logits_NV = logits_NV / self.temperature
            teacher_NV = (teacher_NV / self.temperature).log_softmax(-1)
        p_NV = teacher_NV.exp()
        # A token that the teacher excludes adds 0, not 0 times minus infinity.
        log_p_NV = teacher_NV.clamp(min=torch.finfo(teacher_NV.dtype).min)
        terms_NV = p_NV * (log_p_NV - logits_NV.log_softmax(-1))
        return self.temperature**2 * terms_NV.sum(-1)
