"""SLIM: sparse logit infused modeling (Raman et al., NeurIPS 2023 workshop on instruction tuning).

    -ln q(y) + alpha (1 - exp(-q(y) / p(y))) * TopShareKL

y is the text's token, q and p are the student's and the teacher's distribution. The teacher's top
tokens count more where the student is as sure of the label as its teacher, and less where it still
has to learn the label itself.

The paper gives its idea (the top 5 % of the teacher's logits, weighted by how sure both are) but
neither code nor the weight's formula; this one is our reading. Nothing is learned through the
weight: it is a number.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from paredown.distill.losses.cross_entropy import CrossEntropy
from paredown.distill.losses.top_share_kl import MissingMass, TopShareKL
from paredown.errors import ConfigError

# The largest logarithm of q(y) / p(y) that matters: the weight is 1 long before.
_MOST_LOG_RATIO = 20.0


@dataclass(frozen=True, kw_only=True)
class SLIM:
    """Implements TokenLoss. `alpha` is the most that the teacher's distribution counts beside the
    label; `share`, `missing_mass` and `temperature` are those of TopShareKL. Raises ConfigError for
    numbers out of range."""

    alpha: float = 1.0
    share: float = 0.05
    missing_mass: MissingMass = "zero"
    temperature: float = 1.0

    needs_teacher: ClassVar[bool] = True
    needs_positive: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _ = self._sparse
        if not 0 <= self.alpha < math.inf:
            raise ConfigError(
                "the weight of the teacher's distribution is out of range",
                seen=self.alpha,
                remedy="Give a number from 0; 0 learns from the text alone.",
            )

    @property
    def _sparse(self) -> TopShareKL:
        return TopShareKL(
            share=self.share, missing_mass=self.missing_mass, temperature=self.temperature
        )

    def losses(self, logits_NV: Tensor, targets_N: Tensor, teacher_NV: Tensor | None) -> Tensor:
        assert teacher_NV is not None
        label_N = CrossEntropy().losses(logits_NV, targets_N, None)
        log_p_N = teacher_NV.gather(-1, targets_N[:, None])[:, 0]
        ratio_N = (-label_N.detach() - log_p_N).clamp(max=_MOST_LOG_RATIO).exp()
        weight_N = self.alpha * -(-ratio_N).expm1()
        return label_N + weight_N * self._sparse.losses(logits_NV, targets_N, teacher_NV)
