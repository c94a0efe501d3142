"""Wanda, against the inputs themselves."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.random_layers import moments_of, random_layer
from paredown.compress.prune.magnitude import Magnitude
from paredown.compress.prune.method import Seen
from paredown.compress.prune.pattern import NOfM, Pattern, Share
from paredown.compress.prune.wanda import Wanda
from paredown.compress.quantize.method import Moments
from references.prune import choose, loss


@settings(max_examples=60, deadline=None)
@given(
    num_rows=st.integers(1, 5),
    num_groups=st.integers(1, 5),
    pattern=st.sampled_from([Share(share=0.5), Share(share=0.3), NOfM(n=2, m=4), NOfM(n=1, m=4)]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 2**32 - 1),
)
def test_it_ranks_by_weight_times_norm(
    num_rows: int, num_groups: int, pattern: Pattern, dtype: torch.dtype, seed: int
) -> None:
    weight_OI, x_NI = random_layer(num_rows, 4 * num_groups, seed)
    moments = moments_of(x_NI)
    pruned = Wanda().prune(weight_OI.to(dtype), pattern, Seen(moments=moments))
    scores_OI = weight_OI.abs() * x_NI.norm(dim=0)
    expected_OI = choose(scores_OI.numpy(), weight_OI.numpy(), pattern, "row")
    np.testing.assert_array_equal(pruned.mask_OI.numpy(), expected_OI)
    assert torch.equal(pruned.values_OI, weight_OI.to(dtype) * pruned.mask_OI)
    change_OI = (weight_OI * ~pruned.mask_OI).numpy()
    assert pruned.loss is not None
    np.testing.assert_allclose(pruned.loss, loss(change_OI, moments.hessian_II.numpy()), rtol=1e-4)


def test_columns_without_inputs_go_first() -> None:
    weight_OI, x_NI = random_layer(4, 8, seed=0)
    x_NI[:, [2, 5]] = 0
    pruned = Wanda().prune(100 * weight_OI, Share(share=0.25), Seen(moments=moments_of(x_NI)))
    assert not bool(pruned.mask_OI[:, [2, 5]].any())
    assert pruned.loss == 0


def test_without_inputs_it_prunes_by_magnitude_and_says_so() -> None:
    weight_OI, _ = random_layer(4, 8, seed=1)
    moments = Moments(hessian_II=torch.zeros(8, 8), num_rows=5)
    pruned = Wanda().prune(weight_OI, Share(share=0.5), Seen(moments=moments))
    expected = Magnitude().prune(weight_OI, Share(share=0.5), Seen())
    assert torch.equal(pruned.mask_OI, expected.mask_OI)
    assert pruned.notes == ("pruned by magnitude instead: no input but zeros was seen",)
