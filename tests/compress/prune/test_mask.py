"""Masks by score and pattern, against a ranking that is written out."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from paredown.compress.prune import mask as mask_room
from paredown.compress.prune.mask import Compared, choose_mask
from paredown.compress.prune.pattern import NOfM, Pattern, Share
from paredown.errors import CheckpointError, ConfigError
from references.prune import choose

PATTERNS = st.one_of(
    st.floats(0, 0.999).map(lambda share: Share(share=share)),
    st.sampled_from([(1, 2), (2, 4), (1, 4), (4, 4), (3, 8)]).map(
        lambda pair: NOfM(n=pair[0], m=pair[1])
    ),
)


@st.composite
def weights(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """A weight and its scores, with zeros and many equal scores."""
    num_rows, num_columns = draw(st.integers(1, 6)), 8 * draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    weight_OI = torch.randn(num_rows, num_columns, generator=generator)
    zero_share = draw(st.sampled_from([0.0, 0.1, 0.7, 1.0]))
    weight_OI[torch.rand(num_rows, num_columns, generator=generator) < zero_share] = 0
    num_values = draw(st.sampled_from([1, 3, 10_000]))
    scores_OI = torch.randint(num_values, weight_OI.shape, generator=generator).float()
    return weight_OI, scores_OI


@settings(max_examples=150, deadline=None)
@given(drawn=weights(), pattern=PATTERNS, compared=st.sampled_from(["row", "matrix"]))
def test_it_is_the_ranking(
    drawn: tuple[Tensor, Tensor], pattern: Pattern, compared: Compared
) -> None:
    weight_OI, scores_OI = drawn
    mask_OI = choose_mask(scores_OI, weight_OI, pattern, compared)
    expected_OI = choose(scores_OI.numpy(), weight_OI.numpy(), pattern, compared)
    np.testing.assert_array_equal(mask_OI.numpy(), expected_OI)


@settings(max_examples=50, deadline=None)
@given(drawn=weights(), share=st.floats(0, 0.999), compared=st.sampled_from(["row", "matrix"]))
def test_a_share_is_exact_in_the_whole_matrix(
    drawn: tuple[Tensor, Tensor], share: float, compared: Compared
) -> None:
    weight_OI, scores_OI = drawn
    pattern = Share(share=share)
    removed_OI = ~choose_mask(scores_OI, weight_OI, pattern, compared)
    num_zeros = int((weight_OI == 0).sum())
    wanted = pattern.num_removed(weight_OI.numel())
    assert int(removed_OI.sum()) >= max(wanted, num_zeros)
    if compared == "matrix" or num_zeros == 0:
        assert int(removed_OI.sum()) == max(wanted, num_zeros)
    if compared == "row" and num_zeros == 0:
        assert int(removed_OI.sum(1).max() - removed_OI.sum(1).min()) <= 1


def test_large_matrices_are_ranked_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    scores_OI = torch.randint(5, (9, 16), generator=torch.Generator().manual_seed(1)).float()
    weight_OI = torch.ones_like(scores_OI)
    patterns = [Share(share=0.45), NOfM(n=2, m=4)]
    whole = [choose_mask(scores_OI, weight_OI, pattern, "row") for pattern in patterns]
    monkeypatch.setattr(mask_room, "_RANKED_SCORES", 32)
    for pattern, mask_OI in zip(patterns, whole, strict=True):
        assert torch.equal(choose_mask(scores_OI, weight_OI, pattern, "row"), mask_OI)


def test_columns_must_fit_the_groups() -> None:
    with pytest.raises(ConfigError, match="columns that do not come in 4s"):
        choose_mask(torch.ones(2, 6), torch.ones(2, 6), NOfM(n=2, m=4), "row")


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_scores_must_be_finite(value: float) -> None:
    scores_OI = torch.ones(2, 4)
    scores_OI[1, 2] = value
    with pytest.raises(CheckpointError, match="not finite"):
        choose_mask(scores_OI, torch.ones(2, 4), Share(share=0.5), "row")
