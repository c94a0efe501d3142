"""The column solver against the inverse of H, one column at a time (tests/references/gptq.py), for
values that no method would choose."""

import numpy as np
import pytest
import torch
from torch import Tensor

from fakes.random_layers import moments_of, random_layer
from paredown.compress.column_solver import ColumnSolver
from paredown.compress.hessian_factor import HessianFactor, NoFactor, factor_hessian
from references.gptq import damped, eliminate


class Recording:
    """Lets columns take given values, and notes what it was shown."""

    def __init__(self, wanted_IO: Tensor, stretch: int | None) -> None:
        self.stretch = stretch
        self.wanted_IO = wanted_IO
        self.begun: list[tuple[int, int, Tensor]] = []
        self.shown: dict[int, Tensor] = {}

    def begin(self, values_CO: Tensor, first: int, last: int) -> None:
        self.begun.append((first, last, values_CO.clone()))

    def settle(self, column: int, latest_O: Tensor) -> Tensor:
        assert column not in self.shown
        self.shown[column] = latest_O.clone()
        return self.wanted_IO[column]


def shuffled_factor(weight_OI: Tensor, x_NI: Tensor) -> HessianFactor:
    moved_I = torch.randperm(weight_OI.shape[1], generator=torch.Generator().manual_seed(1))
    factor = factor_hessian(weight_OI, moments_of(x_NI), 0.01, lambda diagonal_I: moved_I)
    assert not isinstance(factor, NoFactor)
    return factor


@pytest.mark.parametrize("num_columns", [1, 31, 70, 130])
@pytest.mark.parametrize("stretch", [None, 1, 4, 24, 64, 500])
def test_columns_and_stretches_are_shown_what_the_inverse_says(
    num_columns: int, stretch: int | None
) -> None:
    weight_OI, x_NI = random_layer(3, num_columns, seed=num_columns)
    factor = shuffled_factor(weight_OI, x_NI)
    wanted_IO = torch.randn(num_columns, 3, dtype=torch.float64)
    settling = Recording(wanted_IO, stretch)
    loss = ColumnSolver(weight_OI, factor, settling).solve()
    hessian_II = moments_of(x_NI).hessian_II.numpy()
    latest_OI, inverse_II = weight_OI.numpy(), np.linalg.inv(damped(hessian_II, 0.01))
    begun = iter(settling.begun)
    for place in range(num_columns - 1, -1, -1):
        column = int(factor.order_I[place])
        if stretch and (num_columns - 1 - place) % stretch == 0:
            first, last, values_CO = next(begun)
            assert (first, last) == (max(0, place + 1 - stretch), place + 1)
            expected_OC = latest_OI[:, factor.order_I[first:last].numpy()]
            np.testing.assert_allclose(values_CO.T, expected_OC, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(settling.shown[place], latest_OI[:, column], rtol=1e-6)
        latest_OI, inverse_II = eliminate(latest_OI, inverse_II, column, wanted_IO[place].numpy())
    assert next(begun, None) is None
    change_OI = (weight_OI - factor.restored(wanted_IO)).numpy()
    trace = 0.5 * np.trace(change_OI @ hessian_II @ change_OI.T)
    assert loss == pytest.approx(trace, rel=1e-6)


def test_the_factor_is_that_of_the_damped_hessian() -> None:
    weight_OI, x_NI = random_layer(2, 40, seed=3)
    x_NI[:, 7] = 0
    factor = shuffled_factor(weight_OI, x_NI)
    lower_II = (factor.unit_II * factor.pivots_I.sqrt()).tril().numpy()
    expected_II = damped(moments_of(x_NI).hessian_II.numpy(), 0.01)
    order_I = factor.order_I.numpy()
    np.testing.assert_allclose(lower_II @ lower_II.T, expected_II[np.ix_(order_I, order_I)])
    assert factor.dead_I.nonzero().tolist() == [[7]]
    cleared_OI = factor.without_dead(weight_OI)
    assert not cleared_OI[:, 7].any()
    assert torch.equal(cleared_OI[:, :7], weight_OI[:, :7])
    assert torch.equal(factor.restored(weight_OI.T[factor.order_I]), weight_OI)
