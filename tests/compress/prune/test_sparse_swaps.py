"""SparseSwaps: never worse, the pattern stays, and no exchange is left that gains."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fakes.random_layers import moments_of, random_layer
from paredown.compress.prune import sparse_swaps as swaps_room
from paredown.compress.prune.magnitude import Magnitude
from paredown.compress.prune.method import Pruned, Seen
from paredown.compress.prune.pattern import NOfM, Pattern, Share
from paredown.compress.prune.sparse_swaps import SparseSwaps
from paredown.compress.prune.wanda import Wanda
from paredown.compress.quantize.method import Moments
from paredown.errors import ConfigError
from references.prune import best_swap_gain, best_values, loss

PATTERNS = [Share(share=0.5), Share(share=0.2), NOfM(n=2, m=4), NOfM(n=4, m=8), Share(share=0)]


def groups_of(mask_OI: Tensor, pattern: Pattern) -> Tensor:
    """How many stay in each row, or group."""
    size = pattern.m if isinstance(pattern, NOfM) else mask_OI.shape[1]
    return mask_OI.reshape(-1, size).sum(1)


def start(weight_OI: Tensor, pattern: Pattern, moments: Moments, first: str) -> Pruned:
    """A mask to begin with: by magnitude or by Wanda, with old values or with the best ones."""
    seen = Seen(moments=moments)
    pruned = (Magnitude() if first == "magnitude" else Wanda()).prune(weight_OI, pattern, seen)
    if first == "best values":
        values = [
            best_values(row.numpy(), np.flatnonzero(mask).tolist(), moments.hessian_II.numpy())
            for row, mask in zip(weight_OI, pruned.mask_OI.numpy(), strict=True)
        ]
        return Pruned(values_OI=torch.from_numpy(np.stack(values)), mask_OI=pruned.mask_OI)
    return pruned


@settings(max_examples=60, deadline=None)
@given(
    num_rows=st.integers(1, 5),
    num_groups=st.integers(1, 3),
    pattern=st.sampled_from(PATTERNS),
    first=st.sampled_from(["magnitude", "wanda", "best values"]),
    has_zeros=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_exchange_is_left_that_gains(
    num_rows: int, num_groups: int, pattern: Pattern, first: str, has_zeros: bool, seed: int
) -> None:
    weight_OI, x_NI = random_layer(num_rows, 8 * num_groups, seed)
    if has_zeros:
        weight_OI[:, ::3] = 0
        x_NI[:, 1] = 0 if first != "best values" else 1
    moments = moments_of(x_NI)
    pruned = start(weight_OI, pattern, moments, first)
    before = pruned.values_OI.clone()
    refined = SparseSwaps().refine(weight_OI, pruned, pattern, moments)
    assert torch.equal(pruned.values_OI, before)
    assert torch.equal(groups_of(refined.mask_OI, pattern), groups_of(pruned.mask_OI, pattern))
    assert not bool(refined.values_OI[~refined.mask_OI].any())
    is_old = refined.mask_OI & ~pruned.mask_OI
    assert torch.equal(refined.values_OI[is_old], weight_OI[is_old])
    assert not bool((refined.mask_OI & (weight_OI == 0)).any())
    hessian_II = moments.hessian_II.numpy()
    for row in range(num_rows):
        changes = [(weight_OI - one)[[row]].numpy() for one in (before, refined.values_OI)]
        before_loss, after_loss = (loss(one, hessian_II) for one in changes)
        assert after_loss <= before_loss
        gain = best_swap_gain(
            weight_OI[row].numpy(),
            refined.values_OI[row].numpy(),
            refined.mask_OI[row].numpy(),
            hessian_II,
            pattern,
        )
        terms = float((weight_OI[row].square() * moments.hessian_II.diagonal()).sum())
        assert gain <= 1e-4 * terms
    whole = loss((weight_OI - refined.values_OI).numpy(), hessian_II)
    assert refined.loss == pytest.approx(whole, rel=1e-6, abs=1e-9)


def test_rows_in_parts_come_out_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    weight_OI, x_NI = random_layer(13, 32, seed=3)
    moments = moments_of(x_NI)
    pruned = start(weight_OI, Share(share=0.5), moments, "wanda")
    whole = SparseSwaps().refine(weight_OI, pruned, Share(share=0.5), moments)
    monkeypatch.setattr(swaps_room, "_VALUES", 100)
    parts = SparseSwaps().refine(weight_OI, pruned, Share(share=0.5), moments)
    assert torch.equal(whole.mask_OI, parts.mask_OI)


def test_a_row_keeps_what_it_had_where_float32_makes_it_worse() -> None:
    """Inputs that cancel each other: what float32 takes for a gain need not be one."""
    for seed in range(5):
        weight_OI, x_NI = random_layer(8, 48, seed, num_inputs=12)
        moments = Moments(hessian_II=moments_of(x_NI).hessian_II.float(), num_rows=12)
        exact_II = moments.hessian_II.double().numpy()
        pruned = Wanda().prune(weight_OI.float(), Share(share=0.5), Seen(moments=moments))
        refined = SparseSwaps().refine(weight_OI.float(), pruned, Share(share=0.5), moments)
        for row in range(8):
            old, new = (
                loss((weight_OI.float() - one.values_OI)[[row]].double().numpy(), exact_II)
                for one in (pruned, refined)
            )
            assert new <= old * (1 + 1e-9)


def test_its_exchanges_are_bounded() -> None:
    weight_OI, x_NI = random_layer(6, 64, seed=5)
    moments = moments_of(x_NI)
    pruned = start(weight_OI, Share(share=0.5), moments, "magnitude")
    for limit in (1, 3):
        refined = SparseSwaps(max_swaps=limit).refine(weight_OI, pruned, Share(share=0.5), moments)
        returned_O = (refined.mask_OI & ~pruned.mask_OI).sum(1)
        assert int(returned_O.max()) == limit
    with pytest.raises(ConfigError, match="no weight"):
        SparseSwaps(max_swaps=0)
