"""SparseGPT against the paper's algorithm with H^-1 (tests/references/sparsegpt.py), and what must
hold of any mask."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fakes.random_layers import moments_of, random_layer
from paredown.compress.prune.magnitude import by_magnitude
from paredown.compress.prune.method import Pruned, Seen
from paredown.compress.prune.pattern import NOfM, Pattern, Share
from paredown.compress.prune.sparsegpt import SparseGPT
from paredown.compress.quantize.method import Moments
from paredown.errors import CheckpointError, ConfigError
from references.sparsegpt import sparsegpt_reference

TWO_OF_FOUR = NOfM(n=2, m=4)
PATTERNS: tuple[Pattern, ...] = (
    Share(share=0.5),
    Share(share=0.3),
    Share(share=0.9),
    TWO_OF_FOUR,
    NOfM(n=4, m=8),
    NOfM(n=8, m=16),
    NOfM(n=3, m=4),
)


def output_loss(weight_OI: Tensor, values_OI: Tensor, x_NI: Tensor) -> float:
    """The mean over inputs x of |(W - Q) x|^2."""
    return (x_NI @ (weight_OI - values_OI).T).square().sum(1).mean().item()


def num_allowed(pattern: Pattern, mask_OI: Tensor) -> bool:
    """Whether a mask has exactly the zeros of its pattern."""
    if isinstance(pattern, NOfM):
        kept = mask_OI.unflatten(1, (-1, pattern.m)).sum(-1)
        return bool((kept == pattern.n).all())
    return int((~mask_OI).sum()) == pattern.num_removed(mask_OI.numel())


@settings(max_examples=20, deadline=None)
@given(
    pattern=st.sampled_from(PATTERNS),
    num_rows=st.integers(1, 5),
    num_groups=st.integers(1, 7),
    block_columns=st.sampled_from([1, 16, 24, 48, 128]),
    damp=st.sampled_from([0.001, 0.01, 1.0]),
    seed=st.integers(0, 2**32 - 1),
    dead=st.sets(st.integers(0, 15), max_size=3),
)
def test_masks_and_values_are_those_of_the_papers_algorithm(
    pattern: Pattern,
    num_rows: int,
    num_groups: int,
    block_columns: int,
    damp: float,
    seed: int,
    dead: set[int],
) -> None:
    num_columns = 16 * num_groups
    weight_OI, x_NI = random_layer(num_rows, num_columns, seed)
    x_NI[:, list(dead)] = 0
    moments = moments_of(x_NI)
    pruned = SparseGPT(block_columns=block_columns, damp=damp).prune(
        weight_OI, pattern, Seen(moments=moments)
    )
    values_OI, mask_OI = sparsegpt_reference(
        weight_OI.numpy(),
        moments.hessian_II.numpy(),
        pattern,
        list(range(num_columns)),
        block_columns=block_columns,
        damp=damp,
    )
    alive_I = [column for column in range(num_columns) if column not in dead]
    # Zeros of dead columns are equal, so that any of them may be the ones that were chosen.
    np.testing.assert_array_equal(pruned.mask_OI[:, alive_I].numpy(), mask_OI[:, alive_I])
    np.testing.assert_allclose(pruned.values_OI, values_OI, rtol=1e-6, atol=1e-8)
    assert num_allowed(pattern, pruned.mask_OI)
    assert not pruned.values_OI[~pruned.mask_OI].any()


@settings(max_examples=15, deadline=None)
@given(
    num_rows=st.integers(1, 5),
    num_columns=st.integers(1, 100),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_given_mask_equals_the_reference(
    num_rows: int, num_columns: int, share: float, seed: int
) -> None:
    weight_OI, x_NI = random_layer(num_rows, num_columns, seed)
    moments = moments_of(x_NI)
    rng = np.random.default_rng(seed)
    mask_OI = rng.random((num_rows, num_columns)) >= share
    pruned = SparseGPT().impose(weight_OI, torch.from_numpy(mask_OI), moments)
    values_OI, _ = sparsegpt_reference(
        weight_OI.numpy(),
        moments.hessian_II.numpy(),
        None,
        list(range(num_columns)),
        mask_OI=mask_OI,
    )
    np.testing.assert_array_equal(pruned.mask_OI.numpy(), mask_OI)
    np.testing.assert_allclose(pruned.values_OI, values_OI, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_outputs_are_closer_than_without_the_smallest_weights(pattern: Pattern) -> None:
    for seed in range(2):
        weight_OI, x_NI = random_layer(16, 144, seed, num_inputs=500)
        pruned = SparseGPT().prune(weight_OI, pattern, Seen(moments=moments_of(x_NI)))
        plain_OI = weight_OI * by_magnitude(weight_OI, pattern).mask_OI
        lost = output_loss(weight_OI, pruned.values_OI, x_NI)
        assert lost < 0.6 * output_loss(weight_OI, plain_OI, x_NI)
        # The same mask without compensation loses more.
        assert lost < output_loss(weight_OI, weight_OI * pruned.mask_OI, x_NI)


@pytest.mark.parametrize("pattern", PATTERNS[:4], ids=lambda pattern: pattern.name)
@pytest.mark.parametrize("num_dead", [0, 5])
def test_the_loss_is_that_of_the_outputs(pattern: Pattern, num_dead: int) -> None:
    weight_OI, x_NI = random_layer(6, 144, seed=9)
    x_NI[:, 40 : 40 + num_dead] = 0
    for method in (SparseGPT(), SparseGPT(order="loss")):
        pruned = method.prune(weight_OI, pattern, Seen(moments=moments_of(x_NI)))
        assert pruned.loss == pytest.approx(
            output_loss(weight_OI, pruned.values_OI, x_NI), rel=1e-6
        )


def test_inputs_that_do_not_depend_on_each_other_leave_the_others_as_they_are() -> None:
    weight_OI, _ = random_layer(6, 160, seed=2)
    moments = Moments(hessian_II=torch.eye(160, dtype=torch.float64), num_rows=9)
    for pattern in PATTERNS:
        for order in ("natural", "loss"):
            method = SparseGPT(order=order, block_columns=160)
            pruned = method.prune(weight_OI, pattern, Seen(moments=moments))
            assert torch.equal(pruned.mask_OI, by_magnitude(weight_OI, pattern).mask_OI)
            assert torch.equal(pruned.values_OI, weight_OI * pruned.mask_OI)


@pytest.mark.parametrize("pattern", PATTERNS[:4], ids=lambda pattern: pattern.name)
def test_float32_is_as_good_as_float64(pattern: Pattern) -> None:
    weight_OI, x_NI = random_layer(16, 192, seed=10, num_inputs=300)
    moments = moments_of(x_NI)
    exact = SparseGPT().prune(weight_OI, pattern, Seen(moments=moments))
    single = Moments(hessian_II=moments.hessian_II.float(), num_rows=moments.num_rows)
    done = SparseGPT().prune(weight_OI.float(), pattern, Seen(moments=single))
    assert done.values_OI.dtype == torch.float32
    assert done.loss == pytest.approx(exact.loss, rel=0.02)
    assert (done.mask_OI != exact.mask_OI).double().mean() < 0.02


def test_equal_weights_are_removed_to_the_exact_share() -> None:
    for share in (0.0, 0.25, 0.37, 0.5, 0.99):
        pattern = Share(share=share)
        for weight_OI in (torch.zeros(7, 96), torch.ones(7, 96)):
            moments = Moments(hessian_II=torch.eye(96), num_rows=9)
            for order in ("natural", "loss"):
                method = SparseGPT(order=order, block_columns=20)
                pruned = method.prune(weight_OI, pattern, Seen(moments=moments))
                assert num_allowed(pattern, pruned.mask_OI)


def test_columns_without_inputs_become_zero_and_are_told() -> None:
    weight_OI, x_NI = random_layer(5, 64, seed=11)
    x_NI[:, [3, 17]] = 0
    for pattern, order in itertools.product(PATTERNS, ("natural", "loss")):
        pruned = SparseGPT(order=order).prune(weight_OI, pattern, Seen(moments=moments_of(x_NI)))
        assert pruned.notes == ("2 columns with no input but zeros became 0",)
        assert not pruned.values_OI[:, [3, 17]].any()
        assert num_allowed(pattern, pruned.mask_OI)


@pytest.mark.parametrize(
    ("hessian_II", "why"),
    [
        (torch.zeros(64, 64, dtype=torch.float64), "no input but zeros"),
        (10 - 9 * torch.eye(64, dtype=torch.float64), "singular even with a damp of 1"),
    ],
)
def test_without_a_factor_the_smallest_weights_go_and_it_is_told(
    hessian_II: Tensor, why: str
) -> None:
    weight_OI, _ = random_layer(5, 64, seed=14)
    moments = Moments(hessian_II=hessian_II, num_rows=0)
    given_OI = torch.arange(64).expand(5, 64) % 3 > 0
    done: list[tuple[Pruned, Tensor]] = [
        (
            SparseGPT().prune(weight_OI, pattern, Seen(moments=moments)),
            by_magnitude(weight_OI, pattern).mask_OI,
        )
        for pattern in PATTERNS
    ]
    done.append((SparseGPT().impose(weight_OI, given_OI, moments), given_OI))
    for pruned, mask_OI in done:
        assert torch.equal(pruned.mask_OI, mask_OI)
        assert torch.equal(pruned.values_OI, weight_OI * mask_OI)
        assert pruned.loss is None
        assert len(pruned.notes) == 1
        assert why in pruned.notes[0]


def test_the_smallest_weights_are_those_of_a_plain_sort() -> None:
    weight_OI, _ = random_layer(5, 64, seed=3)
    for share in (0.0, 0.3, 0.5):
        pattern = Share(share=share)
        mask_OI = by_magnitude(weight_OI, pattern).mask_OI
        ordered = weight_OI.abs().flatten().sort().values
        least = ordered[pattern.num_removed(weight_OI.numel())]
        assert torch.equal(mask_OI, weight_OI.abs() >= least)
    neighbours = weight_OI[2, 8:12].abs()
    kept = by_magnitude(weight_OI, TWO_OF_FOUR).mask_OI[2, 8:12]
    assert neighbours[kept].min() > neighbours[~kept].max()


def test_what_it_is_given_stays_as_it_is() -> None:
    weight_OI, x_NI = random_layer(5, 64, seed=15)
    x_NI[:, 7] = 0
    moments = moments_of(x_NI)
    mask_OI = weight_OI > 0
    before = weight_OI.clone(), moments.hessian_II.clone(), mask_OI.clone()
    for pattern, order in itertools.product(PATTERNS, ("natural", "loss")):
        SparseGPT(order=order).prune(weight_OI, pattern, Seen(moments=moments))
    SparseGPT().impose(weight_OI, mask_OI, moments)
    for now, then in zip((weight_OI, moments.hessian_II, mask_OI), before, strict=True):
        assert torch.equal(now, then)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused(bad: float) -> None:
    weight_OI, x_NI = random_layer(5, 64, seed=16)
    moments = moments_of(x_NI)
    bad_OI, bad_II = weight_OI.clone(), moments.hessian_II.clone()
    bad_OI[2, 3] = bad
    bad_II[4, 9] = bad
    with pytest.raises(CheckpointError, match=r"weights .* not finite.*(nan|inf)"):
        SparseGPT().prune(bad_OI, TWO_OF_FOUR, Seen(moments=moments))
    with pytest.raises(CheckpointError, match=r"inputs .* not finite.*(nan|inf)"):
        SparseGPT().impose(weight_OI, weight_OI > 0, Moments(hessian_II=bad_II, num_rows=9))


def test_options_and_masks_that_make_no_sense_are_refused() -> None:
    for damp in (-0.01, 1.5, float("nan")):
        with pytest.raises(ConfigError, match="damp"):
            SparseGPT(damp=damp)
    with pytest.raises(ConfigError, match="block_columns 0"):
        SparseGPT(block_columns=0)
    weight_OI, x_NI = random_layer(5, 66, seed=17)
    moments = moments_of(x_NI)
    with pytest.raises(ConfigError, match="66 columns for 2of4"):
        SparseGPT().prune(weight_OI, TWO_OF_FOUR, Seen(moments=moments))
    for mask_OI in (torch.ones(66, 5, dtype=torch.bool), torch.ones(5, 66)):
        with pytest.raises(ConfigError, match="mask does not fit"):
            SparseGPT().impose(weight_OI, mask_OI, moments)
