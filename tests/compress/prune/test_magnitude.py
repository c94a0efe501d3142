"""Magnitude pruning."""

import pytest
import torch

from paredown.compress.prune.magnitude import Magnitude
from paredown.compress.prune.method import Seen
from paredown.compress.prune.pattern import NOfM, Share
from paredown.errors import ConfigError


def test_the_weights_nearest_zero_of_the_matrix_go() -> None:
    weight_OI = torch.tensor([[0.1, -5.0, 0.3, 4.0], [-0.2, 0.4, -3.0, 0.0]])
    pruned = Magnitude().prune(weight_OI, Share(share=0.5), Seen())
    expected_OI = torch.tensor([[0.0, -5.0, 0.0, 4.0], [0.0, 0.4, -3.0, 0.0]])
    assert torch.equal(pruned.values_OI, expected_OI)
    assert torch.equal(pruned.mask_OI, expected_OI != 0)
    assert pruned.loss is None


def test_groups_keep_their_own() -> None:
    weight_OI = torch.tensor([[0.1, -5.0, 0.3, 4.0, -0.2, 0.4, -0.3, 0.0]])
    pruned = Magnitude().prune(weight_OI, NOfM(n=2, m=4), Seen())
    assert torch.equal(pruned.values_OI, torch.tensor([[0.0, -5.0, 0.0, 4.0, 0.0, 0.4, -0.3, 0.0]]))


def test_nothing_is_asked_for_and_the_weight_stays_as_it_was() -> None:
    weight_OI = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    before_OI = weight_OI.clone()
    pruned = Magnitude().prune(weight_OI, Share(share=0), Seen())
    pruned.values_OI.zero_()
    assert torch.equal(weight_OI, before_OI)
    assert bool(pruned.mask_OI.all())


def test_columns_must_fit() -> None:
    with pytest.raises(ConfigError, match="columns"):
        Magnitude().prune(torch.ones(2, 6), NOfM(n=4, m=8), Seen())
