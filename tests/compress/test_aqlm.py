"""AQLM's steps against naive ones, and that none of them makes the loss grow."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.compress.quantize import codebook_search as beam_search_module
from paredown.compress.quantize.aqlm import AQLM, Additive
from paredown.compress.quantize.codebook_search import additive_values, beam_search, row_losses
from paredown.compress.quantize.codebook_tuning import tune_codebooks, tune_scales
from paredown.compress.quantize.method import LayerTarget, Moments
from paredown.compress.quantize.residual_kmeans import kmeans, nearest, residual_kmeans
from paredown.errors import CheckpointError, ConfigError, UnsupportedError
from paredown.formats.codebook_weight import CodebookSpec, CodebookWeight
from paredown.formats.table import FORMATS
from paredown.spec.weight import ScaleDType, WeightSpec
from references.additive import beam_search_row, best_codebooks, decode_row, row_loss

TARGET = LayerTarget(spec=WeightSpec(dtype="fp16"), scale_dtype="bf16")


def correlated(num_columns: int, seed: int, num_rows: int | None = None) -> torch.Tensor:
    """2/N times the sum of x x^T over inputs that lie mostly in few directions."""
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((num_columns, num_columns)) * 0.5 ** np.arange(num_columns)
    inputs = rng.standard_normal((num_rows or 4 * num_columns, num_columns)) @ mixing.T
    inputs += 0.1 * rng.standard_normal(inputs.shape) if num_rows is None else 0
    return torch.from_numpy(2 * inputs.T @ inputs / len(inputs))


def random_state(
    num_rows: int, num_groups: int, spec: CodebookSpec, seed: int
) -> tuple[torch.Tensor, Additive]:
    """A weight, and codes, codebooks and scales that have nothing to do with it."""
    generator = torch.Generator().manual_seed(seed)
    size, count = spec.in_group_size, spec.num_codebooks
    shape = (num_rows, num_groups, count)
    state = Additive(
        codes_OJM=torch.randint(0, spec.codebook_size, shape, generator=generator),
        codebooks_MKC=torch.randn(
            count, spec.codebook_size, size, generator=generator, dtype=torch.float64
        ),
        scales_O=torch.rand(num_rows, generator=generator, dtype=torch.float64) + 0.5,
    )
    weight_OI = torch.randn(num_rows, num_groups * size, generator=generator, dtype=torch.float64)
    return weight_OI, state


@pytest.mark.parametrize("beam_size", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_beam_search_equals_the_naive_one(beam_size: int, seed: int) -> None:
    spec = CodebookSpec(num_codebooks=2, nbits_per_codebook=2, in_group_size=2)
    weight_OI, state = random_state(3, 3, spec, seed)
    hessian_II = correlated(6, seed)
    found_OJM = beam_search(
        weight_OI, hessian_II, state.codes_OJM, state.codebooks_MKC, state.scales_O, beam_size
    )
    for row in range(3):
        expected_JM, expected_loss = beam_search_row(
            weight_OI[row].numpy(),
            hessian_II.numpy(),
            state.codes_OJM[row].numpy(),
            state.codebooks_MKC.numpy(),
            float(state.scales_O[row]),
            beam_size,
        )
        np.testing.assert_array_equal(found_OJM[row].numpy(), expected_JM)
        moved = replace(state, codes_OJM=found_OJM)
        losses_O = row_losses(weight_OI - moved.values(), hessian_II)
        assert float(losses_O[row]) == pytest.approx(expected_loss, rel=1e-9)


def test_values_and_loss_equal_the_naive_ones() -> None:
    spec = CodebookSpec(num_codebooks=3, nbits_per_codebook=3, in_group_size=4)
    weight_OI, state = random_state(4, 2, spec, 5)
    hessian_II = correlated(8, 5)
    codebooks = state.codebooks_MKC.numpy()
    total = 0.0
    for row in range(4):
        scale, codes = float(state.scales_O[row]), state.codes_OJM[row].numpy()
        expected_I = decode_row(codes, codebooks, scale)
        np.testing.assert_allclose(state.values()[row].numpy(), expected_I, rtol=1e-12)
        total += row_loss(weight_OI[row].numpy(), codes, codebooks, scale, hessian_II.numpy())
    assert state.loss(weight_OI, hessian_II) == pytest.approx(total, rel=1e-10)


def test_rows_are_searched_alone_however_they_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = CodebookSpec(num_codebooks=2, nbits_per_codebook=3, in_group_size=2)
    weight_OI, state = random_state(7, 4, spec, 1)
    arguments = (weight_OI, correlated(8, 1), state.codes_OJM, state.codebooks_MKC, state.scales_O)
    whole_OJM = beam_search(*arguments, 3)
    monkeypatch.setattr(beam_search_module, "_CHUNK_VALUES", 2 * 3 * 8)
    assert torch.equal(beam_search(*arguments, 3), whole_OJM)


def test_codebooks_go_to_the_least_squares_minimum() -> None:
    spec = CodebookSpec(num_codebooks=2, nbits_per_codebook=2, in_group_size=2)
    weight_OI, state = random_state(12, 3, spec, 2)
    hessian_II = correlated(6, 2)
    arguments = (weight_OI, hessian_II, state.codes_OJM, state.codebooks_MKC, state.scales_O)
    tuned_MKC = tune_codebooks(*arguments, 200)
    expected_MKC = best_codebooks(*(tensor.numpy() for tensor in arguments))
    best = replace(state, codebooks_MKC=torch.from_numpy(expected_MKC))
    tuned = replace(state, codebooks_MKC=tuned_MKC)
    least = best.loss(weight_OI, hessian_II)
    assert least < 0.9 * state.loss(weight_OI, hessian_II)
    assert tuned.loss(weight_OI, hessian_II) == pytest.approx(least, rel=1e-4)
    # The codebooks themselves are free to trade a vector; what they add up to is not.
    np.testing.assert_allclose(tuned.values(), best.values(), atol=0.05)


def test_vectors_that_no_code_names_stay() -> None:
    spec = CodebookSpec(num_codebooks=1, nbits_per_codebook=3, in_group_size=2)
    weight_OI, state = random_state(4, 3, spec, 3)
    state.codes_OJM.clamp_(max=5)
    tuned_MKC = tune_codebooks(
        weight_OI, correlated(6, 3), state.codes_OJM, state.codebooks_MKC, state.scales_O, 20
    )
    assert torch.equal(tuned_MKC[0, 6:], state.codebooks_MKC[0, 6:])
    assert not torch.equal(tuned_MKC[0, 0], state.codebooks_MKC[0, 0])


def test_scales_are_the_best_of_their_rows() -> None:
    spec = CodebookSpec(num_codebooks=1, nbits_per_codebook=2, in_group_size=2)
    weight_OI, state = random_state(3, 3, spec, 4)
    hessian_II = correlated(6, 4)
    state.codebooks_MKC[0, 0] = 0
    state.codes_OJM[2] = 0
    scales_O = tune_scales(
        weight_OI, hessian_II, state.codes_OJM, state.codebooks_MKC, state.scales_O
    )
    assert scales_O[2] == state.scales_O[2]
    for row in range(2):
        losses = []
        for factor in (0.99, 1.0, 1.01):
            moved_O = scales_O.clone()
            moved_O[row] *= factor
            losses.append(replace(state, scales_O=moved_O).loss(weight_OI, hessian_II))
        assert losses[1] < min(losses[0], losses[2])


@settings(max_examples=25, deadline=None)
@given(
    num_codebooks=st.integers(1, 3),
    bits=st.integers(1, 4),
    beam_size=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    poor_inputs=st.booleans(),
)
def test_no_turn_makes_the_loss_grow(
    num_codebooks: int,
    bits: int,
    beam_size: int,
    seed: int,
    dtype: torch.dtype,
    poor_inputs: bool,
) -> None:
    """Also where the inputs leave directions in which any error is free, and on rows of zeros."""
    generator = torch.Generator().manual_seed(seed)
    weight_OI = (torch.randn(12, 16, generator=generator) * 0.02).to(dtype)
    weight_OI[3] = 0
    hessian_II = correlated(16, seed, num_rows=5 if poor_inputs else None).to(dtype)
    method = AQLM(
        num_codebooks=num_codebooks, nbits_per_codebook=bits, in_group_size=4, beam_size=beam_size
    )
    state = method.begin(weight_OI)
    exact_OI, exact_II = weight_OI.double(), hessian_II.double()
    whole = float(row_losses(exact_OI, exact_II).sum())
    last = state.loss(exact_OI, exact_II)
    for _ in range(4):
        turns = list(method.round(state, weight_OI, hessian_II))
        losses = [last, *(turn.loss(exact_OI, exact_II) for turn in turns)]
        assert all(after <= before + 1e-6 * whole for before, after in pairwise(losses))
        state, last = turns[-1], losses[-1]
    assert bool(torch.isfinite(state.codebooks_MKC).all())


def test_it_beats_residual_kmeans_and_round_to_nearest() -> None:
    generator = torch.Generator().manual_seed(0)
    weight_OI = torch.randn(64, 64, generator=generator)
    hessian_II = correlated(64, 0).float()
    method = AQLM(num_codebooks=2, nbits_per_codebook=4, in_group_size=4)
    start = method.begin(weight_OI).loss(weight_OI, hessian_II)
    done = method.quantize(weight_OI, TARGET, Moments(hessian_II=hessian_II, num_rows=256))
    assert isinstance(done.weight, CodebookWeight)
    errors_OI = weight_OI - torch.from_numpy(done.weight.dequantize())
    assert float(row_losses(errors_OI, hessian_II).sum()) < 0.5 * start
    assert done.weight.spec == method.spec
    again = method.quantize(weight_OI, TARGET, Moments(hessian_II=hessian_II, num_rows=256))
    assert isinstance(again.weight, CodebookWeight)
    np.testing.assert_array_equal(again.weight.codes_AJM, done.weight.codes_AJM)
    np.testing.assert_array_equal(again.weight.codebooks_MKRC, done.weight.codebooks_MKRC)


@pytest.mark.parametrize(
    ("dtype", "torch_dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)]
)
def test_what_is_stored_is_representable(dtype: ScaleDType, torch_dtype: torch.dtype) -> None:
    weight_OI, _ = random_state(8, 4, AQLM().spec, 0)
    method = AQLM(num_codebooks=1, nbits_per_codebook=3)
    target = LayerTarget(spec=WeightSpec(dtype=dtype), scale_dtype="fp32")
    moments = Moments(hessian_II=correlated(32, 0), num_rows=128)
    weight = method.quantize(weight_OI, target, moments).weight
    assert isinstance(weight, CodebookWeight)
    assert weight.spec.float_dtype == dtype
    for values in (weight.codebooks_MKRC, weight.scales_A):
        tensor = torch.from_numpy(values)
        assert torch.equal(tensor.to(torch_dtype).float(), tensor)


def test_kmeans_never_gets_farther_and_fills_empty_means() -> None:
    generator = torch.Generator().manual_seed(0)
    vectors_NC = torch.randn(200, 3, generator=generator, dtype=torch.float64)
    vectors_NC[:150] = vectors_NC[0]
    distances = []
    for num_iterations in range(6):
        means_KC = kmeans(vectors_NC, 16, num_iterations, torch.Generator().manual_seed(1))
        codes_N, distances_N = nearest(vectors_NC, means_KC)
        expected_NK = (vectors_NC[:, None] - means_KC[None]).square().sum(-1)
        assert torch.equal(codes_N, expected_NK.argmin(1))
        distances.append(float(distances_N.sum()))
    assert all(b <= a + 1e-9 for a, b in pairwise(distances))
    assert len(codes_N.unique()) == 16


def test_each_codebook_takes_from_what_is_left() -> None:
    generator = torch.Generator().manual_seed(0)
    vectors_NC = torch.randn(300, 4, generator=generator, dtype=torch.float64)
    codebooks_MKC, codes_NM = residual_kmeans(vectors_NC, 3, 8, 20, seed=0)
    left = [float(vectors_NC.square().sum())]
    for count in range(1, 4):
        values = additive_values(codes_NM[:, None, :count], codebooks_MKC[:count])
        left.append(float((vectors_NC - values).square().sum()))
    assert left[0] > left[1] > left[2] > left[3]


def test_fewer_vectors_than_means_are_kept_as_they_are() -> None:
    vectors_NC = torch.arange(10, dtype=torch.float64).reshape(5, 2)
    means_KC = kmeans(vectors_NC, 8, 3, torch.Generator().manual_seed(0))
    assert float(nearest(vectors_NC, means_KC)[1].sum()) == pytest.approx(0, abs=1e-12)


def test_bad_input_is_refused() -> None:
    hessian_II = correlated(12, 0).float()
    moments = Moments(hessian_II=hessian_II, num_rows=48)
    weight_OI = torch.randn(4, 12)
    with pytest.raises(UnsupportedError, match="do not fill"):
        AQLM().quantize(weight_OI, TARGET, moments)
    method = AQLM(num_codebooks=1, nbits_per_codebook=2, in_group_size=4)
    with pytest.raises(ConfigError, match="16-bit float"):
        method.quantize(weight_OI, replace(TARGET, spec=FORMATS["int2-g32"]), moments)
    weight_OI[1, 2] = torch.nan
    with pytest.raises(CheckpointError, match="not finite"):
        method.quantize(weight_OI, TARGET, moments)
    with pytest.raises(ConfigError, match="num_codebooks"):
        AQLM(num_codebooks=0)
    with pytest.raises(ConfigError, match="at least one"):
        AQLM(beam_size=0)
