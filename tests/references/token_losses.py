"""Losses of distillation, one token of the vocabulary at a time, in float64."""

import math
from collections.abc import Sequence


def log_softmax(logits: Sequence[float], temperature: float = 1.0) -> list[float]:
    scaled = [value / temperature for value in logits]
    normalizer = math.log(math.fsum(math.exp(value) for value in scaled))
    return [value - normalizer for value in scaled]


def cross_entropy(logits: Sequence[float], target: int) -> float:
    return -log_softmax(logits)[target]


def forward_kl(
    logits: Sequence[float], teacher_logits: Sequence[float], temperature: float
) -> float:
    log_q = log_softmax(logits, temperature)
    log_p = log_softmax(teacher_logits, temperature)
    terms = (math.exp(p) * (p - q) for p, q in zip(log_p, log_q, strict=True))
    return temperature**2 * math.fsum(terms)


def reverse_kl(
    logits: Sequence[float], teacher_logits: Sequence[float], temperature: float
) -> float:
    return forward_kl(teacher_logits, logits, temperature)


def divergence(one: Sequence[float], other: Sequence[float]) -> float:
    """The KL divergence of two lists of probabilities."""
    pairs = zip(one, other, strict=True)
    return math.fsum(a * math.log(a / b) for a, b in pairs if a > 0)


def probabilities(logits: Sequence[float], temperature: float = 1.0) -> list[float]:
    return [math.exp(value) for value in log_softmax(logits, temperature)]


def soft_label(
    logits: Sequence[float],
    teacher_logits: Sequence[float],
    target: int,
    temperature: float,
    label_weight: float,
) -> float:
    soft = forward_kl(logits, teacher_logits, temperature)
    return soft + label_weight * cross_entropy(logits, target)


def jsd(
    logits: Sequence[float], teacher_logits: Sequence[float], beta: float, temperature: float
) -> float:
    q, p = probabilities(logits, temperature), probabilities(teacher_logits, temperature)
    mixture = [beta * a + (1 - beta) * b for a, b in zip(p, q, strict=True)]
    return temperature**2 * (beta * divergence(p, mixture) + (1 - beta) * divergence(q, mixture))


def top_share_kl(
    logits: Sequence[float],
    teacher_logits: Sequence[float],
    count: int,
    missing_mass: str,
    temperature: float,
) -> float:
    """The teacher's `count` most likely tokens; all others have nothing or the same."""
    q, p = probabilities(logits, temperature), probabilities(teacher_logits, temperature)
    top = set(sorted(range(len(p)), key=lambda token: -p[token])[:count])
    missing = 1 - math.fsum(p[token] for token in top)
    each = missing / (len(p) - count) if missing_mass == "uniform" else 0.0
    kept = [p[token] if token in top else each for token in range(len(p))]
    return temperature**2 * divergence(kept, q)


def slim(
    logits: Sequence[float],
    teacher_logits: Sequence[float],
    target: int,
    count: int,
    alpha: float,
    temperature: float,
) -> float:
    ratio = probabilities(logits)[target] / probabilities(teacher_logits)[target]
    sparse = top_share_kl(logits, teacher_logits, count, "zero", temperature)
    return cross_entropy(logits, target) + alpha * (1 - math.exp(-ratio)) * sparse
