"""Soft labels: the teacher's distribution beside the text's token (arXiv 1503.02531, section 2).

    T^2 KL(p_T || q_T) + lambda (-ln q(target))

The paper's first term is the cross-entropy between p_T and q_T. It differs from the KL divergence
by the entropy of p_T, which no gradient depends on; the KL divergence is 0 at the teacher.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from paredown.distill.losses.cross_entropy import CrossEntropy
from paredown.distill.losses.kl import KL
from paredown.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class SoftLabel:
    """Implements TokenLoss. `label_weight` is lambda. Raises ConfigError for numbers out of
    range."""

    temperature: float = 1.0
    label_weight: float = 0.1

    needs_teacher: ClassVar[bool] = True
    needs_positive: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _ = KL(temperature=self.temperature)
        if not 0 <= self.label_weight < math.inf:
            raise ConfigError(
                "the weight of the text's own tokens is out of range",
                seen=self.label_weight,
                remedy="Give a number from 0; 0 learns from the teacher alone.",
            )

    def losses(self, logits_NV: Tensor, targets_N: Tensor, teacher_NV: Tensor | None) -> Tensor:
        soft_N = KL(temperature=self.temperature).losses(logits_NV, targets_N, teacher_NV)
        return soft_N + self.label_weight * CrossEntropy().losses(logits_NV, targets_N, None)
