"""The loss of a change, against the trace and against the outputs themselves."""

import pytest
import torch

from fakes.random_layers import moments_of, random_layer
from paredown.compress.prune import layer_loss as loss_room
from paredown.compress.prune.layer_loss import layer_loss, row_losses


@pytest.mark.parametrize("values", [1 << 23, 1])
def test_it_is_the_mean_square_of_the_outputs(values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_room, "_VALUES", values)
    monkeypatch.setattr(loss_room, "_STRIPE_COLUMNS", 8)
    change_OI, x_NI = random_layer(19, 20, seed=0)
    hessian_II = moments_of(x_NI).hessian_II
    expected_O = (x_NI @ change_OI.T).square().mean(0)
    torch.testing.assert_close(row_losses(change_OI, hessian_II), expected_O)
    assert layer_loss(change_OI, hessian_II) == pytest.approx(float(expected_O.sum()))


def test_losses_are_told_apart_where_the_hessian_is_small() -> None:
    """A change along inputs that cancel each other, in float32."""
    _, x_NI = random_layer(1, 40, seed=1, num_inputs=39)
    hessian_II = moments_of(x_NI).hessian_II.float()
    smallest_I = torch.linalg.eigh(hessian_II.double()).eigenvectors[:, 0]
    change_OI = (1e3 * smallest_I[None]).float()
    exact = 0.5 * float((change_OI.double() @ hessian_II.double() @ change_OI.double().T).trace())
    assert layer_loss(change_OI, hessian_II) == pytest.approx(max(0.0, exact), rel=1e-9, abs=1e-9)
    assert layer_loss(change_OI, hessian_II, torch.float32) >= 0
