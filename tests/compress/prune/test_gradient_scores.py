"""Methods that score by gradients: Taylor, OBD and low gradients, against their formulas."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.compress.prune.low_gradient import LowGradient
from paredown.compress.prune.magnitude import Magnitude
from paredown.compress.prune.method import Gradients, Pruner, Seen
from paredown.compress.prune.obd import OBD
from paredown.compress.prune.pattern import NOfM, Pattern, Share
from paredown.compress.prune.taylor import Taylor
from references.prune import choose

METHODS: dict[str, Pruner] = {"taylor": Taylor(), "obd": OBD(), "low": LowGradient()}


def gradients_of(windows_NOI: np.ndarray) -> Gradients:
    return Gradients(
        mean_OI=torch.from_numpy(np.abs(windows_NOI).mean(0)),
        square_OI=torch.from_numpy((windows_NOI**2).mean(0)),
        largest_OI=torch.from_numpy(np.abs(windows_NOI).max(0)),
    )


def score(method: str, weight_OI: np.ndarray, windows_NOI: np.ndarray) -> np.ndarray:
    """The increase of the loss by a Taylor series, or the largest gradient."""
    if method == "taylor":
        return np.abs(weight_OI * windows_NOI).mean(0)
    if method == "obd":
        return 0.5 * (weight_OI * windows_NOI).__pow__(2).mean(0)
    return np.abs(windows_NOI).max(0)


@settings(max_examples=60, deadline=None)
@given(
    method=st.sampled_from(sorted(METHODS)),
    pattern=st.sampled_from([Share(share=0.5), Share(share=0.13), NOfM(n=2, m=4)]),
    num_rows=st.integers(1, 5),
    num_groups=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_lowest_scores_of_the_matrix_go(
    method: str, pattern: Pattern, num_rows: int, num_groups: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    weight_OI = rng.standard_normal((num_rows, 4 * num_groups))
    weight_OI[rng.random(weight_OI.shape) < 0.1] = 0
    windows_NOI = rng.standard_normal((3, *weight_OI.shape))
    seen = Seen(gradients=gradients_of(windows_NOI))
    pruned = METHODS[method].prune(torch.from_numpy(weight_OI), pattern, seen)
    expected_OI = choose(score(method, weight_OI, windows_NOI), weight_OI, pattern, "matrix")
    np.testing.assert_array_equal(pruned.mask_OI.numpy(), expected_OI)
    np.testing.assert_array_equal(pruned.values_OI.numpy(), weight_OI * expected_OI)


def test_small_gradients_are_told_apart_in_float32() -> None:
    weight_OI = torch.full((1, 4), 1e-3)
    windows_NOI = np.array([[[1e-14, 3e-14, 2e-14, 4e-14]]])
    gradients = gradients_of(windows_NOI)
    narrow = Gradients(
        mean_OI=gradients.mean_OI.float(),
        square_OI=gradients.square_OI.float(),
        largest_OI=gradients.largest_OI.float(),
    )
    pruned = OBD().prune(weight_OI, Share(share=0.5), Seen(gradients=narrow))
    assert pruned.mask_OI.tolist() == [[False, True, False, True]]


@pytest.mark.parametrize("method", sorted(METHODS))
def test_without_gradients_it_prunes_by_magnitude_and_says_so(method: str) -> None:
    weight_OI = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    seen = Seen(gradients=gradients_of(np.zeros((2, 3, 8))))
    pruned = METHODS[method].prune(weight_OI, Share(share=0.5), seen)
    assert torch.equal(pruned.mask_OI, Magnitude().prune(weight_OI, Share(share=0.5), seen).mask_OI)
    assert pruned.notes == ("pruned by magnitude instead: no gradient but zeros was seen",)
