"""The damped inverse of a Hessian."""

import pytest
import torch

from fakes.random_layers import moments_of, random_layer
from paredown.compress.prune.damped_inverse import damped_inverse


@pytest.mark.parametrize("damp", [0.0, 0.01, 1.0])
def test_it_is_the_inverse(damp: float) -> None:
    _, x_NI = random_layer(1, 12, seed=0)
    hessian_II = moments_of(x_NI).hessian_II
    before_II = hessian_II.clone()
    found = damped_inverse(hessian_II, damp, torch.float64)
    assert found is not None
    assert found.damp == damp
    damped_II = hessian_II + damp * hessian_II.diagonal().mean() * torch.eye(12)
    torch.testing.assert_close(found.inverse_II @ damped_II, torch.eye(12).double())
    assert torch.equal(hessian_II, before_II)


def test_columns_without_inputs_stand_alone() -> None:
    _, x_NI = random_layer(1, 8, seed=1)
    x_NI[:, [2, 5]] = 0
    found = damped_inverse(moments_of(x_NI).hessian_II, 0.0, torch.float64)
    assert found is not None
    assert found.dead_I.nonzero().flatten().tolist() == [2, 5]
    apart_II = found.inverse_II[[2, 5]].clone()
    apart_II[[0, 1], [2, 5]] = 0
    assert not bool(apart_II.any())


def test_damping_grows_until_there_is_an_inverse() -> None:
    hessian_II = torch.ones(6, 6)
    found = damped_inverse(hessian_II, 0.0, torch.float32)
    assert found is not None
    assert found.damp == 0.01
    assert bool(found.inverse_II.isfinite().all())


def test_nothing_to_invert() -> None:
    assert damped_inverse(torch.zeros(4, 4), 0.01, torch.float64) is None
    assert damped_inverse(torch.eye(4) - 3 * torch.ones(4, 4), 0.01, torch.float64) is None
