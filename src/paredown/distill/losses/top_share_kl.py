"""Forward KL divergence from the top of the teacher's distribution, and a rule for the rest.

Let K be the tokens to which the teacher gives the most, a share of the vocabulary, P their
probability together, and n the number of all others.

    zero      T^2 * sum over K of p (ln p - ln q)
    uniform   the same, with p = (1 - P) / n for every other token

Both are biased. The student that lowers `zero` most gives all other tokens nothing and each token
of K its p / P. Samples of the teacher (teacher_logits/draws.py) have no bias.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from paredown.distill.losses.temperature import check_temperature, finite, log_distributions
from paredown.errors import ConfigError

MissingMass = Literal["zero", "uniform"]


@dataclass(frozen=True, kw_only=True)
class TopShareKL:
    """Implements TokenLoss. `share` of the vocabulary, at least one token, is looked at. Raises
    ConfigError for numbers out of range."""

    share: float = 0.05
    missing_mass: MissingMass = "zero"
    temperature: float = 1.0

    needs_teacher: ClassVar[bool] = True
    needs_positive: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_temperature(self.temperature)
        if not 0 < self.share <= 1:
            raise ConfigError(
                "the share of the teacher's tokens is out of range",
                seen=self.share,
                remedy="Give a share above 0, up to 1; 0.05 is one token in twenty.",
            )

    def losses(self, logits_NV: Tensor, targets_N: Tensor, teacher_NV: Tensor | None) -> Tensor:
        assert teacher_NV is not None
        log_q_NV, log_p_NV = log_distributions(logits_NV, teacher_NV, self.temperature)
        vocab_size = log_p_NV.shape[-1]
        log_p_NK, tokens_NK = log_p_NV.topk(math.ceil(self.share * vocab_size), dim=-1)
        log_q_NK = log_q_NV.gather(-1, tokens_NK)
        p_NK = log_p_NK.exp()
        losses_N = (p_NK * (finite(log_p_NK) - log_q_NK)).sum(-1)
        num_others = vocab_size - tokens_NK.shape[-1]
        if self.missing_mass == "uniform" and num_others:
            # Rounding may leave less than nothing.
            mass_N = (1 - p_NK.sum(-1)).clamp(min=0)
            mean_N = (log_q_NV.sum(-1) - log_q_NK.sum(-1)) / num_others
            log_mass_N = finite(mass_N.log()) - math.log(num_others)
            losses_N = losses_N + mass_N * (log_mass_N - mean_N)
        return self.temperature**2 * losses_N
