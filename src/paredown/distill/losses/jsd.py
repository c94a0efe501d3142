"""Generalized Jensen-Shannon divergence (GKD, arXiv 2306.13649, equation 1).

    T^2 * (beta KL(p_T || m) + (1 - beta) KL(q_T || m)),   m = beta p_T + (1 - beta) q_T

Divided by beta it becomes the forward KL divergence as beta goes to 0; divided by 1 - beta, the
reverse one as beta goes to 1. At 0 and 1 itself it would be 0 for every student, so these stand for
the two limits.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from paredown.distill.losses.kl import KL
from paredown.distill.losses.reverse_kl import ReverseKL
from paredown.distill.losses.temperature import check_temperature, finite, log_distributions
from paredown.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class JSD:
    """Implements TokenLoss. `beta` is the teacher's share of the mixture: 0 is the forward KL
    divergence, 1 the reverse one. Raises ConfigError for numbers out of range."""

    beta: float = 0.5
    temperature: float = 1.0

    needs_teacher: ClassVar[bool] = True
    # Only with beta 1 it becomes infinite, but it is not linear in p: samples would bias it.
    needs_positive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_temperature(self.temperature)
        if not 0 <= self.beta <= 1:
            raise ConfigError(
                "the teacher's share of the mixture is out of range",
                seen=self.beta,
                remedy="Give a beta from 0 (forward KL) to 1 (reverse KL).",
            )

    def losses(self, logits_NV: Tensor, targets_N: Tensor, teacher_NV: Tensor | None) -> Tensor:
        assert teacher_NV is not None
        if self.beta == 0:
            return KL(temperature=self.temperature).losses(logits_NV, targets_N, teacher_NV)
        if self.beta == 1:
            return ReverseKL(temperature=self.temperature).losses(logits_NV, targets_N, teacher_NV)
        log_q_NV, log_p_NV = log_distributions(logits_NV, teacher_NV, self.temperature)
        log_m_NV = torch.logaddexp(
            log_p_NV + math.log(self.beta), log_q_NV + math.log1p(-self.beta)
        )
        of_teacher_NV = log_p_NV.exp() * (finite(log_p_NV) - log_m_NV)
        of_student_NV = log_q_NV.exp() * (log_q_NV - log_m_NV)
        terms_NV = self.beta * of_teacher_NV + (1 - self.beta) * of_student_NV
        return self.temperature**2 * terms_NV.sum(-1)
