"""OBS, against removing weights by trying all (references/prune.py)."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.random_layers import moments_of, random_layer
from paredown.compress.prune import obs as obs_room
from paredown.compress.prune.method import Seen
from paredown.compress.prune.obs import OBS
from paredown.compress.prune.pattern import NOfM, Pattern, Share
from paredown.compress.prune.refit import Refit
from paredown.compress.prune.wanda import Wanda
from paredown.compress.quantize.method import Moments
from paredown.errors import ConfigError, UnsupportedError
from references.gptq import damped
from references.prune import greedy_row, loss

PATTERNS = [Share(share=0.5), Share(share=0.3), NOfM(n=2, m=4), NOfM(n=1, m=4), Share(share=0)]


@settings(max_examples=50, deadline=None)
@given(
    num_rows=st.integers(1, 3),
    num_groups=st.integers(1, 3),
    pattern=st.sampled_from(PATTERNS),
    damp=st.sampled_from([0.0, 0.01, 0.3]),
    seed=st.integers(0, 2**32 - 1),
)
def test_it_is_the_greedy_choice_by_trying_all(
    num_rows: int, num_groups: int, pattern: Pattern, damp: float, seed: int
) -> None:
    weight_OI, x_NI = random_layer(num_rows, 4 * num_groups, seed)
    moments = moments_of(x_NI)
    pruned = OBS(damp=damp).prune(weight_OI, pattern, Seen(moments=moments))
    hessian_II = moments.hessian_II.numpy()
    before = 0
    for row in range(num_rows):
        until = round(pattern.share * 4 * num_groups * (row + 1))
        count = until - before
        before = until
        expected_I = greedy_row(weight_OI[row].numpy(), damped(hessian_II, damp), pattern, count)
        np.testing.assert_allclose(pruned.values_OI[row].numpy(), expected_I, rtol=1e-6, atol=1e-8)
        np.testing.assert_array_equal(pruned.mask_OI[row].numpy(), expected_I != 0)
    change_OI = (weight_OI - pruned.values_OI).numpy()
    assert pruned.loss == pytest.approx(loss(change_OI, hessian_II), rel=1e-6, abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), pattern=st.sampled_from(PATTERNS))
def test_zeros_and_columns_without_inputs_go_first(seed: int, pattern: Pattern) -> None:
    weight_OI, x_NI = random_layer(4, 16, seed)
    weight_OI[0] = 0
    weight_OI[1, :3] = 0
    weight_OI[2, ::2] = 0
    x_NI[:, [1, 6]] = 0
    pruned = OBS().prune(weight_OI, pattern, Seen(moments=moments_of(x_NI)))
    assert not bool((pruned.mask_OI & (weight_OI == 0)).any())
    assert torch.equal(pruned.values_OI != 0, pruned.mask_OI)
    size = pattern.m if isinstance(pattern, NOfM) else 16
    num_zeros = (weight_OI == 0).reshape(-1, size).sum(1)
    wanted = torch.tensor(round(pattern.share * size))
    removed = (~pruned.mask_OI).reshape(-1, size).sum(1)
    assert int((removed - torch.maximum(num_zeros, wanted)).abs().max()) <= 1
    if pattern == Share(share=0.5):
        assert not bool(pruned.mask_OI[[1, 3]][:, [1, 6]].any())


def test_it_is_below_what_chooses_at_once_and_refits() -> None:
    weight_OI, x_NI = random_layer(16, 48, seed=0)
    seen, half = Seen(moments=moments_of(x_NI)), Share(share=0.5)
    assert seen.moments is not None
    exact = OBS(damp=0).prune(weight_OI, half, seen)
    at_once = Wanda().prune(weight_OI, half, seen)
    refitted = Refit().refine(weight_OI, at_once, half, seen.moments)
    assert exact.loss is not None
    assert refitted.loss is not None
    assert exact.loss < refitted.loss


def test_rows_in_parts_come_out_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    weight_OI, x_NI = random_layer(7, 12, seed=3)
    seen = Seen(moments=moments_of(x_NI))
    whole = OBS().prune(weight_OI.float(), Share(share=0.4), seen)
    monkeypatch.setattr(obs_room, "_VALUES", 300)
    parts = OBS().prune(weight_OI.float(), Share(share=0.4), seen)
    torch.testing.assert_close(whole.values_OI, parts.values_OI)
    assert whole.values_OI.dtype == torch.float32


def test_a_layer_that_takes_too_long_is_refused_with_the_bound() -> None:
    weight_OI = torch.ones(576, 1536)
    seen = Seen(moments=Moments(hessian_II=torch.eye(1536), num_rows=1))
    with pytest.raises(UnsupportedError, match=r"576 x 1536 weights.*the most is 1e\+11"):
        OBS().prune(weight_OI, Share(share=0.5), seen)


def test_what_it_says_of_inputs_that_are_few() -> None:
    weight_OI, x_NI = random_layer(3, 8, seed=1, num_inputs=2)
    x_NI[1] = x_NI[0]
    pruned = OBS(damp=0).prune(weight_OI, Share(share=0.5), Seen(moments=moments_of(x_NI)))
    assert pruned.notes == ("damp grew from 0 to 0.01",)
    nothing = Moments(hessian_II=torch.zeros(8, 8), num_rows=0)
    pruned = OBS().prune(weight_OI, Share(share=0.5), Seen(moments=nothing))
    assert pruned.notes == ("pruned by magnitude instead: the inputs give no inverse",)


def test_its_damp_has_bounds() -> None:
    for damp in (-0.1, 1.5):
        with pytest.raises(ConfigError, match="share of the mean diagonal"):
            OBS(damp=damp)
