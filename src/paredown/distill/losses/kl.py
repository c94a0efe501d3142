"""Forward KL divergence from the teacher's whole distribution (arXiv 1503.02531, section 2).

    T^2 * sum over the vocabulary of p_T (ln p_T - ln q_T)

p_T and q_T are the teacher's and the student's distribution at the temperature T. The factor keeps
the size of the gradient when T changes.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from paredown.distill.losses.temperature import check_temperature, finite, log_distributions


@dataclass(frozen=True, kw_only=True)
class KL:
    """Implements TokenLoss. Raises ConfigError unless `temperature` is a positive number."""

    temperature: float = 1.0

    needs_teacher: ClassVar[bool] = True
    needs_positive: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_temperature(self.temperature)

    def losses(self, logits_NV: Tensor, targets_N: Tensor, teacher_NV: Tensor | None) -> Tensor:
        assert teacher_NV is not None
        log_q_NV, log_p_NV = log_distributions(logits_NV, teacher_NV, self.temperature)
        terms_NV = log_p_NV.exp() * (finite(log_p_NV) - log_q_NV)
        return self.temperature**2 * terms_NV.sum(-1)
