"""The predicted losses, against removing each weight and solving for the others."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.random_layers import moments_of, random_layer
from paredown.compress.prune.obs_losses import loss_curve, obs_losses
from paredown.compress.quantize.method import Moments
from references.gptq import damped
from references.prune import best_values, loss


@settings(max_examples=20, deadline=None)
@given(damp=st.sampled_from([0.0, 0.01, 0.5]), seed=st.integers(0, 2**32 - 1))
def test_each_is_the_loss_of_the_best_answer_to_its_removal(damp: float, seed: int) -> None:
    weight_OI, x_NI = random_layer(2, 7, seed)
    moments = moments_of(x_NI)
    found_OI = obs_losses(weight_OI, moments, damp)
    damped_II = damped(moments.hessian_II.numpy(), damp)
    for row in range(2):
        for column in range(7):
            rest = [one for one in range(7) if one != column]
            values_I = best_values(weight_OI[row].numpy(), rest, damped_II)
            expected = loss((weight_OI[row].numpy() - values_I)[None], damped_II)
            assert float(found_OI[row, column]) == pytest.approx(expected, rel=1e-6)


def test_columns_without_inputs_cost_nothing() -> None:
    weight_OI, x_NI = random_layer(3, 8, seed=0)
    x_NI[:, 4] = 0
    found_OI = obs_losses(weight_OI, moments_of(x_NI))
    assert (found_OI == 0).nonzero()[:, 1].tolist() == [4, 4, 4]
    nothing = Moments(hessian_II=torch.zeros(8, 8), num_rows=3)
    assert not bool(obs_losses(weight_OI, nothing).any())


@settings(max_examples=30, deadline=None)
@given(
    num_rows=st.integers(1, 20),
    num_columns=st.integers(1, 20),
    num_points=st.integers(1, 60),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_curve_sums_the_lowest(
    num_rows: int, num_columns: int, num_points: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    losses_OI = torch.rand(num_rows, num_columns, generator=generator)
    curve = loss_curve(losses_OI, num_points)
    ordered = sorted(losses_OI.flatten().tolist())
    assert curve.num_weights == len(ordered)
    assert len(curve.shares) <= num_points
    for share, value in zip(curve.shares, curve.losses, strict=True):
        assert share < 1
        assert value == pytest.approx(sum(ordered[: round(share * len(ordered))]), rel=1e-6)
    if num_points == 60 and len(ordered) >= 60:
        np.testing.assert_allclose(curve.shares, np.arange(60) / 60, atol=1 / len(ordered))
