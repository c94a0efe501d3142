"""Pruning one weight at a time in float64: rankings written out, least squares solved anew for
every choice. No factors, no updates."""

import itertools

import numpy as np

from paredown.compress.prune.pattern import NOfM, Pattern


def loss(change_OI: np.ndarray, hessian_II: np.ndarray) -> float:
    """1/2 tr(D H D^T)."""
    return 0.5 * float(np.trace(change_OI @ hessian_II @ change_OI.T))


def choose(
    scores_OI: np.ndarray, weight_OI: np.ndarray, pattern: Pattern, compared: str
) -> np.ndarray:
    """The mask: among those that compete, zeros go first, then the lowest scores, then the first
    in order."""
    num_rows, num_columns = weight_OI.shape
    mask_OI = weight_OI != 0
    for places, count in competitors(num_rows, num_columns, pattern, compared):
        ranked = sorted(
            places, key=lambda place: (weight_OI[place] != 0, scores_OI[place], places.index(place))
        )
        for place in ranked[:count]:
            mask_OI[place] = False
    return mask_OI


def competitors(
    num_rows: int, num_columns: int, pattern: Pattern, compared: str
) -> list[tuple[list[tuple[int, int]], int]]:
    """The places that compete, and how many of them go."""
    rows = [[(row, column) for column in range(num_columns)] for row in range(num_rows)]
    if isinstance(pattern, NOfM):
        return [
            (row[start : start + pattern.m], pattern.m - pattern.n)
            for row in rows
            for start in range(0, num_columns, pattern.m)
        ]
    if compared == "matrix":
        places = list(itertools.chain(*rows))
        return [(places, round(pattern.share * len(places)))]
    found, before = [], 0
    for number, row in enumerate(rows):
        until = round(pattern.share * num_columns * (number + 1))
        found.append((row, until - before))
        before = until
    return found


def best_values(weight_I: np.ndarray, kept: list[int], hessian_II: np.ndarray) -> np.ndarray:
    """The row on `kept` with the least loss."""
    values_I = np.zeros_like(weight_I)
    if kept:
        inner = hessian_II[np.ix_(kept, kept)]
        values_I[kept] = np.linalg.solve(inner, hessian_II[kept] @ weight_I)
    return values_I


def greedy_row(
    weight_I: np.ndarray, hessian_II: np.ndarray, pattern: Pattern, count: int
) -> np.ndarray:
    """Optimal Brain Surgeon by trying: removes one weight after another, each time the one whose
    removal leaves the least loss when all others take their best values."""
    kept = list(range(len(weight_I)))
    removed_in: dict[int, int] = {}

    def allowed(column: int) -> bool:
        if not isinstance(pattern, NOfM):
            return True
        return removed_in.get(column // pattern.m, 0) < pattern.m - pattern.n

    def loss_without(column: int) -> float:
        rest = [one for one in kept if one != column]
        change = weight_I - best_values(weight_I, rest, hessian_II)
        return loss(change[None], hessian_II)

    for _ in range(count):
        column = min((one for one in kept if allowed(one)), key=loss_without)
        kept.remove(column)
        if isinstance(pattern, NOfM):
            removed_in[column // pattern.m] = removed_in.get(column // pattern.m, 0) + 1
    return best_values(weight_I, kept, hessian_II)


def best_swap_gain(
    weight_I: np.ndarray,
    values_I: np.ndarray,
    mask_I: np.ndarray,
    hessian_II: np.ndarray,
    pattern: Pattern,
) -> float:
    """How much the best exchange of a kept weight for a removed one lowers the loss, by trying all;
    the removed one returns with its old value."""
    before = loss((weight_I - values_I)[None], hessian_II)
    best = 0.0
    for back, out in itertools.product(np.flatnonzero(~mask_I), np.flatnonzero(mask_I)):
        if weight_I[back] == 0:
            continue
        if isinstance(pattern, NOfM) and back // pattern.m != out // pattern.m:
            continue
        tried = values_I.copy()
        tried[back], tried[out] = weight_I[back], 0
        best = max(best, before - loss((weight_I - tried)[None], hessian_II))
    return best
