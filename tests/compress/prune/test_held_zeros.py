"""Zeros are held where a matrix was pruned, and left alone where they came by chance."""

import numpy as np
import pytest
import torch

from paredown.compress.prune.held_zeros import held_zeros
from paredown.compress.prune.magnitude import by_magnitude
from paredown.compress.prune.pattern import NOfM, Pattern, Share


def random_weight() -> torch.Tensor:
    return torch.randn(24, 64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "pattern",
    [Share(share=0.25), Share(share=0.5), NOfM(n=2, m=4), NOfM(n=8, m=16), NOfM(n=3, m=4)],
    ids=lambda pattern: pattern.name,
)
def test_pruned_matrices_are_found(pattern: Pattern) -> None:
    mask_OI = by_magnitude(random_weight(), pattern).mask_OI
    values_OI = random_weight() * mask_OI
    for weight_OI in (values_OI, values_OI.bfloat16(), values_OI.numpy(), values_OI.half().numpy()):
        found_OI = held_zeros(weight_OI, recorded=False)
        assert found_OI is not None
        assert torch.equal(found_OI, mask_OI)


def test_a_negative_zero_is_one() -> None:
    values_OI = torch.tensor([[-0.0, 1.0], [2.0, -3.0]])
    found_OI = held_zeros(values_OI, recorded=False)
    assert found_OI is not None
    assert found_OI.tolist() == [[False, True], [True, True]]


def test_natural_zeros_are_not_held() -> None:
    """Weights read back from four bits have zeros without having been pruned."""
    values_OI = random_weight()
    scales_O1 = values_OI.abs().amax(1, keepdim=True) / 7
    dequantized_OI = (values_OI / scales_O1).round() * scales_O1
    share = float((dequantized_OI == 0).double().mean())
    assert 0.05 < share < 0.25
    assert held_zeros(dequantized_OI, recorded=False) is None
    found_OI = held_zeros(dequantized_OI, recorded=True)
    assert found_OI is not None
    assert torch.equal(found_OI, dequantized_OI != 0)


def test_the_bound_is_a_quarter() -> None:
    values_OI = np.ones((5, 20), np.float32)
    values_OI.flat[:24] = 0
    assert held_zeros(values_OI, recorded=False) is None
    values_OI.flat[24] = 0
    assert held_zeros(values_OI, recorded=False) is not None


def test_without_zeros_nothing_is_held() -> None:
    assert held_zeros(torch.ones(3, 4), recorded=True) is None
