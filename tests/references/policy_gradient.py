"""Policy gradients of distillation, one token at a time in float64."""

import math
from collections.abc import Sequence

from references.token_losses import probabilities, reverse_kl


def policy_loss(
    logits: Sequence[float],
    teacher_logits: Sequence[float],
    target: int,
    advantage: float,
    weight: float,
    kl_weight: float,
) -> float:
    chosen = -advantage * math.log(probabilities(logits)[target])
    return weight * (chosen + kl_weight * reverse_kl(logits, teacher_logits, 1.0))


def mean_later_rewards(log_q: Sequence[float], log_p: Sequence[float]) -> list[float]:
    """The mean reward of the tokens after each one; 0 after the last."""
    found = []
    for place in range(len(log_q)):
        later = [log_p[i] - log_q[i] for i in range(place + 1, len(log_q))]
        found.append(math.fsum(later) / len(later) if later else 0.0)
    return found


def importance_weight(log_q: float, log_p: float, teacher_share: float) -> float:
    q, p = math.exp(log_q), math.exp(log_p)
    return q / (teacher_share * p + (1 - teacher_share) * q)


def drawn_token(shares: Sequence[float], draw: float) -> int:
    """The token at which the sum of all shares so far first exceeds the draw."""
    total = 0.0
    for token, share in enumerate(shares):
        total += share
        if draw < total:
            return token
    return len(shares) - 1
