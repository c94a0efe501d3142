"""Scores of answers and of searches, slow and obvious."""

import math
from collections.abc import Sequence
from fractions import Fraction


def confusion(
    predicted: Sequence[int], expected: Sequence[int], positive: int
) -> tuple[int, int, int, int]:
    """True positives, false positives, false negatives, true negatives."""
    pairs = [
        (one == positive, other == positive) for one, other in zip(predicted, expected, strict=True)
    ]
    return (
        pairs.count((True, True)),
        pairs.count((True, False)),
        pairs.count((False, True)),
        pairs.count((False, False)),
    )


def f1(predicted: Sequence[int], expected: Sequence[int], positive: int) -> float:
    """The harmonic mean of precision and recall."""
    right, wrong, missed, _ = confusion(predicted, expected, positive)
    if not right:
        return 0.0
    precision, recall = Fraction(right, right + wrong), Fraction(right, right + missed)
    return float(2 * precision * recall / (precision + recall))


def matthews(predicted: Sequence[int], expected: Sequence[int]) -> float:
    """The correlation of all pairs of answers: do they agree that two things are alike?"""
    labels = sorted({*predicted, *expected})

    def covariance(one: Sequence[int], other: Sequence[int]) -> Fraction:
        total = Fraction(0)
        for label in labels:
            mean = Fraction(list(one).count(label), len(one))
            other_mean = Fraction(list(other).count(label), len(other))
            for a, b in zip(one, other, strict=True):
                total += ((a == label) - mean) * ((b == label) - other_mean)
        return total

    spread = covariance(predicted, predicted) * covariance(expected, expected)
    return float(covariance(predicted, expected)) / math.sqrt(spread) if spread else 0.0


def ranks(numbers: Sequence[float]) -> list[Fraction]:
    """One more than how many are smaller, and half of how many others are equal."""
    return [
        1 + sum(other < one for other in numbers) + Fraction(list(numbers).count(one) - 1, 2)
        for one in numbers
    ]


def pearson(x: Sequence[Fraction], y: Sequence[Fraction]) -> float:
    """Covariance over the root of the spreads, in fractions."""
    mean_x, mean_y = sum(x) / Fraction(len(x)), sum(y) / Fraction(len(y))
    together = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    spread_x = sum((a - mean_x) ** 2 for a in x)
    spread_y = sum((b - mean_y) ** 2 for b in y)
    return float(together) / (math.sqrt(spread_x) * math.sqrt(spread_y))


def recall_at(found: Sequence[int], relevant: Sequence[int], num_first: int) -> float:
    """The share of what is relevant that is among the first results, for one query."""
    return sum(one in found[:num_first] for one in relevant) / len(relevant)


def reciprocal_rank(found: Sequence[int], relevant: Sequence[int]) -> float:
    """One over the place of the first relevant result, for one query."""
    for place in range(len(found)):
        if found[place] in relevant:
            return 1 / (place + 1)
    return 0.0
