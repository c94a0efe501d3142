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
