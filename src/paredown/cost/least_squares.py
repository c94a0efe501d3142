"""Least squares in plain Python, for fits of a few coefficients."""

from collections.abc import Sequence


def least_squares(
    rows: Sequence[Sequence[float]], targets: Sequence[float], weights: Sequence[float]
) -> list[float]:
    """Returns the coefficients x >= 0 that minimize the sum of (w (row . x - target))^2.

    It uses Lawson and Hanson's active sets (Solving Least Squares Problems, 1974, chapter 23) on
    the normal equations. Columns are first scaled to one size. A column of zeros gets 0.
    """
    num_columns = len(rows[0])
    scaled = [[w * one for one in row] for row, w in zip(rows, weights, strict=True)]
    wanted = [w * one for one, w in zip(targets, weights, strict=True)]
    norms = [sum(row[i] ** 2 for row in scaled) ** 0.5 or 1.0 for i in range(num_columns)]
    unit = [[one / norm for one, norm in zip(row, norms, strict=True)] for row in scaled]
    gram = [
        [sum(r[i] * r[j] for r in unit) for j in range(num_columns)] for i in range(num_columns)
    ]
    right = [sum(r[i] * t for r, t in zip(unit, wanted, strict=True)) for i in range(num_columns)]
    found = _nonnegative(gram, right)
    return [one / norm for one, norm in zip(found, norms, strict=True)]


def quadratic_fit(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Returns non-negative (a, b, c) that fit y = a + b x + c x^2 with the least squared relative
    errors."""
    rows = [(1.0, x, x * x) for x, _ in points]
    values = [y for _, y in points]
    a, b, c = least_squares(rows, values, [1 / y for y in values])
    return a, b, c


def _nonnegative(gram: list[list[float]], right: list[float]) -> list[float]:
    size = len(right)
    active: list[int] = []
    found = [0.0] * size
    for _ in range(3 * size + 3):
        slopes = [right[i] - sum(gram[i][j] * found[j] for j in range(size)) for i in range(size)]
        outside = [i for i in range(size) if i not in active and gram[i][i] > 0]
        best = max(outside, key=lambda i: slopes[i], default=None)
        if best is None or slopes[best] <= 1e-12 * (abs(right[best]) or 1.0):
            break
        active.append(best)
        while True:
            trial = _solve(
                [[gram[i][j] for j in active] for i in active], [right[i] for i in active]
            )
            if min(trial) > 0:
                break
            # Moves toward the trial solution until the first coefficient reaches 0 and leaves the
            # set.
            steps = [
                (found[i] / (found[i] - value), i)
                for i, value in zip(active, trial, strict=True)
                if value <= 0
            ]
            share, leaving = min(steps)
            for i, value in zip(active, trial, strict=True):
                found[i] += share * (value - found[i])
            found[leaving] = 0.0
            active.remove(leaving)
            if not active:
                return found
        for i, value in zip(active, trial, strict=True):
            found[i] = value
    return found


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solves by Gaussian elimination with the largest pivot. A small ridge stabilizes nearly
    singular systems."""
    size = len(right)
    rows = [
        [one + (1e-12 if i == j else 0.0) for j, one in enumerate(row)] + [right[i]]
        for i, row in enumerate(matrix)
    ]
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(i + 1, size):
            factor = rows[k][i] / rows[i][i]
            rows[k] = [x - factor * y for x, y in zip(rows[k], rows[i], strict=True)]
    found = [0.0] * size
    for i in reversed(range(size)):
        rest = sum(rows[i][j] * found[j] for j in range(i + 1, size))
        found[i] = (rows[i][size] - rest) / rows[i][i]
    return found
