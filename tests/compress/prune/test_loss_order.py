"""The order of ROSE against plain sorts (tests/references/sparsegpt.py), and what it gains."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.random_layers import moments_of, random_layer
from paredown.compress.prune.loss_order import loss_order, natural_order
from paredown.compress.prune.method import Seen
from paredown.compress.prune.pattern import NOfM, Pattern, Share
from paredown.compress.prune.sparsegpt import SparseGPT
from references.sparsegpt import rose_order

PATTERNS: tuple[Pattern, ...] = (
    Share(share=0.5),
    Share(share=0.73),
    NOfM(n=2, m=4),
    NOfM(n=8, m=16),
    NOfM(n=1, m=48),
)


@settings(max_examples=40, deadline=None)
@given(
    pattern=st.sampled_from(PATTERNS),
    num_rows=st.integers(3, 9),
    num_groups=st.integers(1, 4),
    block_columns=st.sampled_from([7, 32, 100, 400]),
    seed=st.integers(0, 2**32 - 1),
)
def test_columns_and_blocks_go_by_their_predicted_losses(
    pattern: Pattern, num_rows: int, num_groups: int, block_columns: int, seed: int
) -> None:
    weight_OI, x_NI = random_layer(num_rows, 48 * num_groups, seed)
    diagonal_I = moments_of(x_NI).hessian_II.diagonal()
    before = weight_OI.clone(), diagonal_I.clone()
    found = loss_order(weight_OI, diagonal_I, pattern, block_columns).flip(0).tolist()
    expected = rose_order(weight_OI.numpy(), diagonal_I.numpy(), pattern, block_columns)
    assert found == expected
    assert torch.equal(weight_OI, before[0])
    assert torch.equal(diagonal_I, before[1])


def test_the_natural_order_settles_the_leftmost_first() -> None:
    assert natural_order(torch.ones(4)).tolist() == [3, 2, 1, 0]


@pytest.mark.parametrize("pattern", PATTERNS[:4], ids=lambda pattern: pattern.name)
def test_what_loses_most_is_better_pruned_first(pattern: Pattern) -> None:
    """In sum over layers whose columns differ in size, as those of language models do."""
    losses = {"natural": 0.0, "loss": 0.0}
    for seed in range(3):
        weight_OI, x_NI = random_layer(24, 128, seed)
        seen = Seen(moments=moments_of(x_NI))
        for order in ("natural", "loss"):
            loss = SparseGPT(order=order, block_columns=32).prune(weight_OI, pattern, seen).loss
            assert loss is not None
            losses[order] += loss
    assert losses["loss"] < losses["natural"]
