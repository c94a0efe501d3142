"""SparseGPT (arXiv 2301.00774, algorithm 1) one column at a time in float64, with the inverse of
the Hessian written out. No factor of H, no updates that wait."""

from collections.abc import Callable

import numpy as np

from paredown.compress.prune.pattern import NOfM, Pattern
from references.gptq import damped, eliminate


def chosen(
    weight_OI: np.ndarray,
    diagonal_I: np.ndarray,
    columns: list[int],
    num_removed: int,
    pattern: Pattern,
) -> np.ndarray:
    """Which weights of `columns` stay, [O, C]: all but those of least w^2 / U_ii^2."""
    losses_OC = weight_OI[:, columns] ** 2 / diagonal_I[columns] ** 2
    mask_OC = np.ones(losses_OC.shape, bool)
    if isinstance(pattern, NOfM):
        for row in range(len(mask_OC)):
            worst = sorted(range(len(columns)), key=lambda place: losses_OC[row, place])
            mask_OC[row, worst[: pattern.m - pattern.n]] = False
    else:
        worst_first = np.argsort(losses_OC, axis=None, kind="stable")
        mask_OC.flat[worst_first[:num_removed]] = False
    return mask_OC


def sparsegpt_reference(
    weight_OI: np.ndarray,
    hessian_II: np.ndarray,
    pattern: Pattern | None,
    order: list[int],
    *,
    mask_OI: np.ndarray | None = None,
    block_columns: int = 128,
    damp: float = 0.01,
    rounded: Callable[[int, np.ndarray], np.ndarray] = lambda column, values_O: values_O,
) -> tuple[np.ndarray, np.ndarray]:
    """The values and the mask. Columns are pruned in `order`; without a pattern `mask_OI` is
    imposed. `rounded` says what becomes of a column's values that stay."""
    num_rows, num_columns = weight_OI.shape
    weight_OI = weight_OI.copy()
    weight_OI[:, np.diag(hessian_II) == 0] = 0
    mask_OI = np.ones(weight_OI.shape, bool) if mask_OI is None else mask_OI
    inverse_II = np.linalg.inv(damped(hessian_II, damp))
    # H^-1 = U^T U in the order of pruning.
    upper_II = np.linalg.cholesky(inverse_II[np.ix_(order, order)]).T
    diagonal_I = np.empty(num_columns)
    diagonal_I[order] = np.diag(upper_II)
    size = pattern.m if isinstance(pattern, NOfM) else block_columns
    num_removed = 0
    for turn, column in enumerate(order):
        if pattern is not None and turn % size == 0:
            columns = order[turn : turn + size]
            asked = round(pattern.share * (num_rows * min(turn + size, num_columns))) - num_removed
            mask_OI[:, columns] = chosen(weight_OI, diagonal_I, columns, asked, pattern)
            num_removed += asked
        values_O = rounded(column, weight_OI[:, column]) * mask_OI[:, column]
        weight_OI, inverse_II = eliminate(weight_OI, inverse_II, column, values_O)
    return weight_OI, mask_OI


def rose_order(
    weight_OI: np.ndarray, diagonal_I: np.ndarray, pattern: Pattern, block_columns: int
) -> list[int]:
    """The columns in the order of ROSE (arXiv 2603.05878), the first to be pruned first."""
    num_rows, num_columns = weight_OI.shape
    scores_OI = np.abs(weight_OI) * np.sqrt(diagonal_I)
    size = pattern.m if isinstance(pattern, NOfM) else block_columns
    blocks: list[tuple[float, list[int]]] = []
    num_removed = 0
    for start in range(0, num_columns, size):
        columns = list(range(start, min(start + size, num_columns)))
        removed: dict[int, list[float]] = {column: [] for column in columns}
        if isinstance(pattern, NOfM):
            for row in range(num_rows):
                worst = sorted(columns, key=lambda column: scores_OI[row, column])
                for column in worst[: pattern.m - pattern.n]:
                    removed[column].append(scores_OI[row, column])
        else:
            asked = round(pattern.share * (num_rows * (columns[-1] + 1))) - num_removed
            num_removed += asked
            places = [(row, column) for row in range(num_rows) for column in columns]
            for row, column in sorted(places, key=lambda place: scores_OI[place])[:asked]:
                removed[column].append(scores_OI[row, column])
        losses = {column: sum(scores) for column, scores in removed.items()}
        columns.sort(key=lambda column: -losses[column])
        blocks.append((sum(losses.values()), columns))
    whole = [block for block in blocks if len(block[1]) == size]
    short = [block for block in blocks if len(block[1]) < size]
    whole.sort(key=lambda block: -block[0])
    return [column for _, columns in (*whole, *short) for column in columns]
