"""The surgeon removes what the definition says costs least, and predicts that cost."""

import numpy as np
import pytest
import torch

from paredown.compress.cut.column_surgeon import remove_units
from paredown.compress.cut.compensation import FitSums, compensated
from paredown.errors import CheckpointError
from references.column_removal import best_choice, best_weight, cheapest_unit, removal_cost

DAMP = 0.01


def problem(num_columns: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(num_columns, num_columns)) ** 3
    x = rng.normal(size=(4 * num_columns, num_columns)) @ mixing
    return rng.normal(size=(5, num_columns)), 2 * x.T @ x / len(x)


@pytest.mark.parametrize(("num_units", "size"), [(12, 1), (5, 4), (3, 6)])
@pytest.mark.parametrize("seed", range(3))
def test_units_go_in_the_order_of_the_definition(num_units: int, size: int, seed: int) -> None:
    weight, hessian = problem(num_units * size, seed)
    units = [list(range(unit * size, (unit + 1) * size)) for unit in range(num_units)]
    alive = list(range(num_units))
    total = 0.0
    for num_removed in range(1, num_units):
        alive.remove(cheapest_unit(weight, hessian, units, alive, DAMP))
        found = remove_units(
            torch.from_numpy(weight), torch.from_numpy(hessian), num_units, num_removed, DAMP
        )
        assert found.kept_U.tolist() == alive
        # The predicted costs add up to the cost of everything that is gone.
        kept = [column for unit in alive for column in units[unit]]
        total = removal_cost(weight, hessian, kept, DAMP)
        assert sum(found.losses) == pytest.approx(total, rel=1e-6)
    assert total > 0


@pytest.mark.parametrize("seed", range(3))
def test_one_column_is_the_best_of_all(seed: int) -> None:
    weight, hessian = problem(9, seed)
    kept, cost = best_choice(weight, hessian, 1, DAMP)
    found = remove_units(torch.from_numpy(weight), torch.from_numpy(hessian), 9, 1, DAMP)
    assert found.kept_U.tolist() == kept
    assert found.losses[0] == pytest.approx(cost, rel=1e-6)


def test_columns_that_are_alike_need_a_damp() -> None:
    with pytest.raises(CheckpointError, match="too alike"):
        remove_units(torch.ones(2, 4), torch.ones(4, 4) - 2 * torch.eye(4), 4, 1, 0.0)


def test_the_compensated_weight_is_the_least_squares_solution() -> None:
    weight, hessian = problem(10, 4)
    kept = [0, 2, 3, 7, 9]
    own = torch.from_numpy(weight)
    found = compensated(
        own, torch.from_numpy(hessian), own @ torch.from_numpy(hessian), np.array(kept), DAMP
    )
    np.testing.assert_allclose(found.numpy(), best_weight(weight, hessian, kept, DAMP), rtol=1e-9)


def test_sums_with_targets_fit_them() -> None:
    rng = np.random.default_rng(8)
    x, wanted = rng.normal(size=(300, 6)), rng.normal(size=(4, 6))
    targets = x @ wanted.T + 0.1 * rng.normal(size=(300, 4))
    sums = FitSums(torch.zeros(4, 6))
    for start in range(0, 300, 70):
        part = slice(start, start + 70)
        sums.add(torch.from_numpy(x[part]).float(), torch.from_numpy(targets[part]).float())
    hessian = sums.moments().hessian_II
    cross = sums.cross(hessian)
    found = compensated(torch.zeros(4, 6), hessian, cross, np.arange(6), 1e-9)
    expected = np.linalg.lstsq(x, targets, rcond=None)[0].T
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-4)
    with pytest.raises(CheckpointError, match="not finite"):
        sums.add(torch.full((1, 6), torch.inf), torch.zeros(1, 4))
