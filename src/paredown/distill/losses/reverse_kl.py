"""Reverse KL divergence, from the student to its teacher (arXiv 2306.08543, section 2.1).

    T^2 * sum over the vocabulary of q_T (ln q_T - ln p_T)

It asks the student to say only what the teacher would say, while the forward divergence (kl.py)
asks it to be able to say all of that.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from paredown.distill.losses.temperature import check_temperature, log_distributions


@dataclass(frozen=True, kw_only=True)
class ReverseKL:
    """Implements TokenLoss. Raises ConfigError unless `temperature` is a positive number."""

    temperature: float = 1.0

    needs_teacher: ClassVar[bool] = True
    needs_positive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_temperature(self.temperature)

    def losses(self, logits_NV: Tensor, targets_N: Tensor, teacher_NV: Tensor | None) -> Tensor:
        assert teacher_NV is not None
        log_q_NV, log_p_NV = log_distributions(logits_NV, teacher_NV, self.temperature)
        return self.temperature**2 * (log_q_NV.exp() * (log_q_NV - log_p_NV)).sum(-1)
