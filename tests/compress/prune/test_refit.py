"""The refit, against each row's own least squares."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.random_layers import moments_of, random_layer
from paredown.compress.prune import refit as refit_room
from paredown.compress.prune.magnitude import Magnitude
from paredown.compress.prune.method import Pruned, Seen
from paredown.compress.prune.pattern import Share
from paredown.compress.prune.refit import Refit
from paredown.compress.quantize.method import Moments
from paredown.errors import ConfigError
from references.prune import best_values, loss

HALF = Share(share=0.5)


@settings(max_examples=60, deadline=None)
@given(
    num_rows=st.integers(1, 6),
    num_columns=st.integers(1, 24),
    kept_share=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_it_finds_the_least_squares_of_any_mask(
    num_rows: int, num_columns: int, kept_share: float, seed: int
) -> None:
    weight_OI, x_NI = random_layer(num_rows, num_columns, seed)
    moments = moments_of(x_NI)
    mask_OI = torch.rand(weight_OI.shape, generator=torch.Generator().manual_seed(seed))
    mask_OI = mask_OI < kept_share
    pruned = Pruned(values_OI=weight_OI * mask_OI, mask_OI=mask_OI, notes=("a note",))
    refined = Refit(num_iterations=200).refine(weight_OI, pruned, HALF, moments)
    hessian_II = moments.hessian_II.numpy()
    expected_OI = np.stack(
        [
            best_values(row.numpy(), np.flatnonzero(mask).tolist(), hessian_II)
            for row, mask in zip(weight_OI, mask_OI.numpy(), strict=True)
        ]
    )
    least = loss(weight_OI.numpy() - expected_OI, hessian_II)
    assert refined.loss == pytest.approx(least, rel=1e-6, abs=1e-9)
    assert not bool(refined.values_OI[~mask_OI].any())
    assert torch.equal(refined.mask_OI, mask_OI)
    assert refined.notes == ("a note",)
    np.testing.assert_allclose(refined.values_OI.numpy(), expected_OI, rtol=1e-3, atol=1e-3)


@settings(max_examples=40, deadline=None)
@given(
    num_inputs=st.integers(1, 60),
    num_iterations=st.sampled_from([1, 2, 30]),
    spread=st.sampled_from([0.0, 3.0, 8.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_row_gets_worse_in_float32(
    num_inputs: int, num_iterations: int, spread: float, seed: int
) -> None:
    """Fewer inputs than columns, and columns of very different sizes."""
    weight_OI, x_NI = random_layer(5, 32, seed, num_inputs)
    x_NI = x_NI * (spread * torch.linspace(-1, 1, 32, dtype=torch.float64)).exp()
    x_NI[:, 3] = 0
    moments = Moments(hessian_II=moments_of(x_NI).hessian_II.float(), num_rows=num_inputs)
    pruned = Magnitude().prune(weight_OI.float(), HALF, Seen())
    # Values that are the best already cannot be improved, only spoilt.
    pruned = Refit().refine(weight_OI.float(), pruned, HALF, moments)
    refined = Refit(num_iterations=num_iterations).refine(weight_OI.float(), pruned, HALF, moments)
    exact_II = moments.hessian_II.double().numpy()
    for row in range(5):
        old, new = (
            loss((weight_OI.float() - one.values_OI)[[row]].double().numpy(), exact_II)
            for one in (pruned, refined)
        )
        assert new <= old or new == pytest.approx(old, rel=1e-9, abs=1e-12)
    assert bool(refined.values_OI.isfinite().all())


def test_rows_in_parts_come_out_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    weight_OI, x_NI = random_layer(7, 16, seed=2)
    moments = moments_of(x_NI)
    pruned = Magnitude().prune(weight_OI, HALF, Seen())
    whole = Refit().refine(weight_OI, pruned, HALF, moments)
    monkeypatch.setattr(refit_room, "_VALUES", 40)
    parts = Refit().refine(weight_OI, pruned, HALF, moments)
    torch.testing.assert_close(whole.values_OI, parts.values_OI)
    assert whole.loss == pytest.approx(parts.loss)


def test_values_that_were_changed_are_where_it_begins() -> None:
    """One iteration from near the end is nearer than one from the old values."""
    weight_OI, x_NI = random_layer(4, 24, seed=4)
    moments = moments_of(x_NI)
    pruned = Magnitude().prune(weight_OI, HALF, Seen())
    near = Refit(num_iterations=20).refine(weight_OI, pruned, HALF, moments)
    from_near = Refit(num_iterations=1).refine(weight_OI, near, HALF, moments)
    from_old = Refit(num_iterations=1).refine(weight_OI, pruned, HALF, moments)
    assert from_near.loss is not None
    assert from_old.loss is not None
    assert from_near.loss < from_old.loss


def test_it_needs_an_iteration() -> None:
    with pytest.raises(ConfigError, match="iteration"):
        Refit(num_iterations=0)
