"""Losses of features as their formulas, one number at a time."""

import math
from collections.abc import Sequence

Vector = Sequence[float]
Matrix = Sequence[Sequence[float]]


def mapped(matrix: Matrix, vector: Vector) -> list[float]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def product(left: Matrix, right: Matrix) -> list[list[float]]:
    columns = list(zip(*right, strict=True))
    return [mapped(columns, row) for row in left]


def distance(one: Vector, other: Vector) -> float:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def size(vector: Vector) -> float:
    return sum(one**2 for one in vector)


def score(query: Vector, key: Vector, scale: float, soft_cap: float | None) -> float:
    found = scale * sum(a * b for a, b in zip(query, key, strict=True))
    return found if soft_cap is None else soft_cap * math.tanh(found / soft_cap)


def head_mean(scores: Sequence[float], head: int, num_heads: int) -> float:
    """The mean of the teacher's heads whose share of all overlaps that of the student's head."""
    start, end = head / num_heads, (head + 1) / num_heads
    each = 1 / len(scores)
    chosen = [
        one
        for number, one in enumerate(scores)
        if min(end, (number + 1) * each) - max(start, number * each) > 1e-9
    ]
    return sum(chosen) / len(chosen)


def hidden(own: Vector, taught: Vector, projection: Matrix) -> float:
    return distance(mapped(projection, own), taught) / size(taught)


def boundary(own: Vector, taught: Vector, connector: Matrix) -> float:
    total = 0.0
    for mine, theirs in zip(mapped(connector, own), taught, strict=True):
        total += max(0.0, 1 - mine) ** 2 if theirs > 0 else max(0.0, 1 + mine) ** 2
    return total / len(taught)


def weight(own: Matrix, taught: Matrix, left: Matrix, right: Matrix) -> float:
    made = product(product(left, own), [list(row) for row in zip(*right, strict=True)])
    pairs = zip(made, taught, strict=True)
    return sum(distance(a, b) for a, b in pairs) / sum(size(row) for row in taught)


def gradient(own: Vector, taught: Vector, state: Vector, projection: Matrix) -> float:
    return distance(mapped(projection, own), taught) * size(state) / len(state)
