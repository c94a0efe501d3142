"""Removing columns of a weight, by the definition: every choice is tried, and what is left is
solved for in float64."""

from itertools import combinations

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]


def best_weight(weight: Matrix, hessian: Matrix, kept: list[int], damp: float) -> Matrix:
    """The weight W' [O, K] with the least tr(D H D^T) + d |D|^2 for D = W' - W, W' being 0 in the
    columns that are gone."""
    damped = hessian + damp * hessian.diagonal().mean() * np.eye(len(hessian))
    return np.linalg.solve(damped[np.ix_(kept, kept)], damped[kept] @ weight.T).T


def removal_cost(weight: Matrix, hessian: Matrix, kept: list[int], damp: float) -> float:
    """Half of that least value."""
    damped = hessian + damp * hessian.diagonal().mean() * np.eye(len(hessian))
    change = -weight.copy()
    change[:, kept] += best_weight(weight, hessian, kept, damp)
    return float(np.trace(change @ damped @ change.T)) / 2


def cheapest_unit(
    weight: Matrix, hessian: Matrix, units: list[list[int]], alive: list[int], damp: float
) -> int:
    """The unit whose removal, besides those that are gone, leaves the least cost."""
    costs = []
    for unit in alive:
        kept = [column for one in alive if one != unit for column in units[one]]
        costs.append(removal_cost(weight, hessian, kept, damp))
    return alive[int(np.argmin(costs))]


def best_choice(
    weight: Matrix, hessian: Matrix, num_removed: int, damp: float
) -> tuple[list[int], float]:
    """The columns that stay in the best of all choices, and its cost."""
    num = weight.shape[1]
    choices = [list(one) for one in combinations(range(num), num - num_removed)]
    costs = [removal_cost(weight, hessian, kept, damp) for kept in choices]
    return choices[int(np.argmin(costs))], min(costs)
