"""GPTQ against the plain recursion (tests/references/gptq.py), and what must hold of any of it."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fakes.random_layers import moments_of, random_layer
from paredown.compress.quantize.gptq import GPTQ
from paredown.compress.quantize.method import LayerTarget, Moments, Quantized
from paredown.compress.quantize.rtn import RTN
from paredown.errors import CheckpointError, ConfigError, UnsupportedError
from paredown.formats.grid_weight import GridWeight
from paredown.formats.table import FORMATS
from paredown.spec.weight import ScaleDType, WeightSpec
from references.gptq import damped, eliminate, gptq_reference

INT4 = WeightSpec(dtype="int4")
INT3 = WeightSpec(dtype="int3")
SPECS = [
    WeightSpec(dtype=dtype, group_size=group_size, symmetric=symmetric)
    for dtype, group_size, symmetric in itertools.product(
        ("int8", "int6", "int5", "int4", "int3", "int2"), (None, 4, 16, 48), (True, False)
    )
] + [WeightSpec(dtype="fp8", group_size=group_size) for group_size in (None, 16)]


def target_of(spec: WeightSpec, scale_dtype: ScaleDType = "bf16") -> LayerTarget:
    return LayerTarget(spec=spec, scale_dtype=scale_dtype)


def signed_codes(weight: GridWeight) -> np.ndarray:
    if weight.spec.dtype == "fp8":
        numbers = torch.from_numpy(weight.values_OI).view(torch.float8_e4m3fn)
        return numbers.double().numpy()
    return weight.values_OI.astype(float) - 2 ** (weight.spec.bits - 1)


def values_of(done: Quantized) -> Tensor:
    return torch.from_numpy(done.weight.at_work())


def output_loss(weight_OI: Tensor, done: Quantized, x_NI: Tensor) -> float:
    """The mean over inputs x of |(W - Q) x|^2."""
    change_OI = weight_OI - values_of(done).to(weight_OI.dtype)
    return (x_NI @ change_OI.T).square().sum(1).mean().item()


def assert_same_weight(first: GridWeight, second: GridWeight) -> None:
    np.testing.assert_array_equal(first.values_OI, second.values_OI)
    np.testing.assert_array_equal(first.scales_OG, second.scales_OG)
    if first.zero_points_OG is not None:
        np.testing.assert_array_equal(first.zero_points_OG, second.zero_points_OG)


METHODS = st.builds(
    GPTQ,
    act_order=st.booleans(),
    static_groups=st.booleans(),
    damp=st.sampled_from([0.001, 0.01, 0.1, 1.0]),
    range=st.just("minmax"),
)


@settings(max_examples=100, deadline=None)
@given(
    method=METHODS,
    spec=st.sampled_from(SPECS),
    dtype=st.sampled_from(["fp32", "bf16", "fp16"]),
    num_rows=st.integers(1, 4),
    size=st.integers(1, 7),
    seed=st.integers(0, 2**32 - 1),
    dead=st.sets(st.integers(0, 16), max_size=3),
)
def test_codes_are_those_of_the_plain_recursion(
    method: GPTQ,
    spec: WeightSpec,
    dtype: ScaleDType,
    num_rows: int,
    size: int,
    seed: int,
    dead: set[int],
) -> None:
    num_columns = size * (spec.group_size or 17)
    weight_OI, x_NI = random_layer(num_rows, num_columns, seed)
    x_NI[:, [column for column in dead if 0 < column < num_columns]] = 0
    moments = moments_of(x_NI)
    weight = method.quantize(weight_OI, target_of(spec, dtype), moments).weight
    codes_OI, scales_OG, zeros_OG = gptq_reference(
        weight_OI.numpy(), moments.hessian_II.numpy(), spec, dtype, method
    )
    np.testing.assert_array_equal(weight.scales_OG, scales_OG.astype(np.float32))
    if weight.zero_points_OG is not None:
        expected = zeros_OG + 2 ** (spec.bits - 1)
        np.testing.assert_array_equal(weight.zero_points_OG, expected)
    np.testing.assert_array_equal(signed_codes(weight), codes_OI)


def test_the_recursion_of_the_reference_is_least_squares() -> None:
    """After every column, the others are the solution of the constrained problem itself: with d
    given on the columns that are done, d H d^T is least for d = -d_done H_done,rest H_rest^-1."""
    weight_OI, x_NI = random_layer(3, 6, seed=1)
    hessian_II = damped(moments_of(x_NI).hessian_II.numpy(), 0.01)
    original_OI = weight_OI.numpy()
    latest_OI, inverse_II = original_OI, np.linalg.inv(hessian_II)
    order = [4, 0, 5, 2, 1, 3]
    for turn, column in enumerate(order[:-1]):
        latest_OI, inverse_II = eliminate(
            latest_OI, inverse_II, column, np.round(latest_OI[:, column])
        )
        done, rest = order[: turn + 1], order[turn + 1 :]
        change_OD = latest_OI[:, done] - original_OI[:, done]
        asked_OR = change_OD @ hessian_II[np.ix_(done, rest)]
        best_OR = -np.linalg.solve(hessian_II[np.ix_(rest, rest)], asked_OR.T).T
        np.testing.assert_allclose(latest_OI[:, rest], original_OI[:, rest] + best_OR, rtol=1e-9)


@pytest.mark.parametrize("spec", [INT3, INT4, FORMATS["int4-g32-asym"], FORMATS["fp8"]])
@pytest.mark.parametrize(("act_order", "most"), [(False, 0.9), (True, 0.5)])
def test_outputs_are_closer_than_round_to_nearests(
    spec: WeightSpec, act_order: bool, most: float
) -> None:
    """In each of 20 layers of 32 rows, on the same grids. Of a single row this need not hold."""
    method = GPTQ(act_order=act_order, static_groups=True, range="minmax")
    for seed in range(20):
        weight_OI, x_NI = random_layer(32, 64, seed, num_inputs=256)
        done = method.quantize(weight_OI, target_of(spec), moments_of(x_NI))
        nearest = RTN().quantize(weight_OI, target_of(spec), None)
        np.testing.assert_array_equal(done.weight.scales_OG, nearest.weight.scales_OG)
        assert output_loss(weight_OI, done, x_NI) < most * output_loss(weight_OI, nearest, x_NI)


@pytest.mark.parametrize("name", [name for name, spec in FORMATS.items() if spec.is_quantized])
@pytest.mark.parametrize(("act_order", "static_groups"), [(False, True), (True, False)])
def test_inputs_that_do_not_depend_on_each_other_give_round_to_nearest(
    name: str, act_order: bool, static_groups: bool
) -> None:
    weight_OI = random_layer(6, 256, seed=2)[0].float()
    sizes_I = torch.rand(256, generator=torch.Generator().manual_seed(3)) + 0.1
    method = GPTQ(act_order=act_order, static_groups=static_groups, range="minmax")
    nearest = RTN().quantize(weight_OI, target_of(FORMATS[name]), None).weight
    for diagonal_I in (torch.ones(256), sizes_I):
        moments = Moments(hessian_II=torch.diag(diagonal_I), num_rows=1000)
        done = method.quantize(weight_OI, target_of(FORMATS[name]), moments)
        assert_same_weight(done.weight, nearest)


@pytest.mark.parametrize("range_name", ["mse", "percentile"])
def test_the_range_is_searched_as_asked(range_name: str) -> None:
    weight_OI = random_layer(6, 256, seed=4)[0]
    moments = Moments(hessian_II=torch.eye(256, dtype=torch.float64), num_rows=1000)
    for spec in (INT4, FORMATS["int3-g64-asym"]):
        done = GPTQ(range=range_name).quantize(weight_OI, target_of(spec), moments)
        nearest = RTN(range=range_name).quantize(weight_OI, target_of(spec), None)
        assert_same_weight(done.weight, nearest.weight)


OPTIONS = [
    GPTQ(act_order=act_order, static_groups=static_groups)
    for act_order, static_groups in itertools.product((False, True), (False, True))
]


@pytest.mark.parametrize("method", OPTIONS)
@pytest.mark.parametrize("spec", [INT3, FORMATS["int4-g32-asym"]])
def test_rows_do_not_know_each_other(method: GPTQ, spec: WeightSpec) -> None:
    weight_OI, x_NI = random_layer(7, 96, seed=5)
    moments = moments_of(x_NI)
    together = method.quantize(weight_OI, target_of(spec), moments).weight
    rows = torch.tensor([5, 0, 3])
    some = method.quantize(weight_OI[rows], target_of(spec), moments).weight
    np.testing.assert_array_equal(some.values_OI, together.values_OI[rows])
    np.testing.assert_array_equal(some.scales_OG, together.scales_OG[rows])


@pytest.mark.parametrize("spec", [INT3, WeightSpec(dtype="int4", symmetric=False)])
def test_with_act_order_columns_may_come_in_any_order(spec: WeightSpec) -> None:
    weight_OI, x_NI = random_layer(7, 96, seed=6)
    moved_I = torch.randperm(96, generator=torch.Generator().manual_seed(7))
    method, target = GPTQ(act_order=True), target_of(spec)
    straight = method.quantize(weight_OI, target, moments_of(x_NI)).weight
    moved = method.quantize(weight_OI[:, moved_I], target, moments_of(x_NI[:, moved_I])).weight
    np.testing.assert_array_equal(moved.values_OI, straight.values_OI[:, moved_I])


@pytest.mark.parametrize("method", OPTIONS)
def test_the_scale_of_inputs_does_not_matter(method: GPTQ) -> None:
    weight_OI, x_NI = random_layer(5, 64, seed=8)
    target = target_of(FORMATS["int4-g32"])
    done = method.quantize(weight_OI, target, moments_of(x_NI))
    scaled = method.quantize(weight_OI, target, moments_of(x_NI * 2**-20))
    assert_same_weight(done.weight, scaled.weight)


@pytest.mark.parametrize("method", OPTIONS)
@pytest.mark.parametrize("name", ["int3-g32-asym", "int4-g64", "fp8", "int8"])
@pytest.mark.parametrize("num_dead", [0, 5])
def test_the_loss_is_that_of_the_outputs(method: GPTQ, name: str, num_dead: int) -> None:
    weight_OI, x_NI = random_layer(6, 128, seed=9)
    x_NI[:, 40 : 40 + num_dead] = 0
    moments = moments_of(x_NI)
    done = method.quantize(weight_OI, target_of(FORMATS[name]), moments)
    change_OI = weight_OI - values_of(done).double()
    trace = 0.5 * torch.trace(change_OI @ moments.hessian_II @ change_OI.T).item()
    assert done.loss == pytest.approx(trace, rel=1e-6)
    assert done.loss == pytest.approx(output_loss(weight_OI, done, x_NI), rel=1e-6)


@pytest.mark.parametrize("method", OPTIONS)
@pytest.mark.parametrize("name", ["int4-g128", "int4-g32-asym"])
def test_float32_is_as_good_as_float64(method: GPTQ, name: str) -> None:
    weight_OI, x_NI = random_layer(64, 512, seed=10, num_inputs=600)
    moments, target = moments_of(x_NI), target_of(FORMATS[name])
    exact = method.quantize(weight_OI, target, moments)
    single = Moments(hessian_II=moments.hessian_II.float(), num_rows=moments.num_rows)
    done = method.quantize(weight_OI.float(), target, single)
    assert done.loss == pytest.approx(exact.loss, rel=0.02)
    assert (done.weight.values_OI != exact.weight.values_OI).mean() < 0.02


def test_columns_without_inputs_become_zero_and_are_told() -> None:
    weight_OI, x_NI = random_layer(5, 64, seed=11)
    x_NI[:, [3, 17]] = 0
    for method, name in itertools.product(OPTIONS, ("int4-g32", "int4-g32-asym", "fp8")):
        done = method.quantize(weight_OI, target_of(FORMATS[name]), moments_of(x_NI))
        assert done.notes == ("2 columns with no input but zeros became 0",)
        assert not values_of(done)[:, [3, 17]].any()
        assert values_of(done)[:, 4].any()


def test_damping_grows_until_the_hessian_has_a_factor() -> None:
    weight_OI, x_NI = random_layer(5, 64, seed=12)
    hessian_II = moments_of(x_NI / x_NI.std(0)).hessian_II
    mean = hessian_II.diagonal().mean()
    least = torch.linalg.eigvalsh(hessian_II)[0]
    for below, grown in ((0.05, "0.1"), (0.5, "1")):
        # The least eigenvalue becomes -`below` times the mean diagonal.
        shift = (least + below * mean) / (1 + below)
        shifted_II = hessian_II - shift * torch.eye(64, dtype=torch.float64)
        moments = Moments(hessian_II=shifted_II, num_rows=9)
        done = GPTQ().quantize(weight_OI, target_of(INT4), moments)
        assert done.notes == (f"damp grew from 0.01 to {grown}",)
        again = GPTQ(damp=float(grown)).quantize(weight_OI, target_of(INT4), moments)
        assert again.notes == ()
        assert_same_weight(done.weight, again.weight)
    done = GPTQ(damp=0).quantize(weight_OI, target_of(INT4), moments)
    assert done.notes == ("damp grew from 0 to 1",)


def test_fewer_inputs_than_columns_are_enough() -> None:
    weight_OI, x_NI = random_layer(16, 64, seed=13, num_inputs=10)
    done = GPTQ().quantize(weight_OI.float(), target_of(INT4), moments_of(x_NI.float()))
    nearest = RTN().quantize(weight_OI, target_of(INT4), None)
    assert done.notes == ()
    assert output_loss(weight_OI, done, x_NI) < 0.5 * output_loss(weight_OI, nearest, x_NI)


@pytest.mark.parametrize(
    ("hessian_II", "why"),
    [
        (torch.zeros(64, 64, dtype=torch.float64), "no input but zeros"),
        (10 - 9 * torch.eye(64, dtype=torch.float64), "singular even with a damp of 1"),
    ],
)
def test_what_cannot_be_factored_is_rounded_to_nearest_and_told(
    hessian_II: Tensor, why: str
) -> None:
    weight_OI, _ = random_layer(5, 64, seed=14)
    moments = Moments(hessian_II=hessian_II, num_rows=0)
    for range_name in ("minmax", "mse"):
        done = GPTQ(range=range_name).quantize(weight_OI, target_of(INT4), moments)
        nearest = RTN(range=range_name).quantize(weight_OI, target_of(INT4), None)
        assert_same_weight(done.weight, nearest.weight)
        assert len(done.notes) == 1
        assert done.notes[0].startswith("rounded to nearest instead: ")
        assert why in done.notes[0]
        assert done.loss is None


def test_what_it_is_given_stays_as_it_is() -> None:
    weight_OI, x_NI = random_layer(5, 64, seed=15)
    x_NI[:, 7] = 0
    moments = moments_of(x_NI)
    before = weight_OI.clone(), moments.hessian_II.clone()
    for method in OPTIONS:
        method.quantize(weight_OI, target_of(FORMATS["int4-g32"]), moments)
    assert torch.equal(weight_OI, before[0])
    assert torch.equal(moments.hessian_II, before[1])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_refused(bad: float) -> None:
    weight_OI, x_NI = random_layer(5, 64, seed=16)
    moments = moments_of(x_NI)
    bad_OI, bad_II = weight_OI.clone(), moments.hessian_II.clone()
    bad_OI[2, 3] = bad
    bad_II[4, 9] = bad
    with pytest.raises(CheckpointError, match=r"weights .* not finite.*(nan|inf)"):
        GPTQ().quantize(bad_OI, target_of(INT4), moments)
    with pytest.raises(CheckpointError, match=r"inputs .* not finite.*(nan|inf)"):
        GPTQ().quantize(weight_OI, target_of(INT4), Moments(hessian_II=bad_II, num_rows=9))


def test_options_that_make_no_sense_are_refused() -> None:
    for damp in (-0.01, 1.5, float("nan")):
        with pytest.raises(ConfigError, match="damp"):
            GPTQ(damp=damp)
    weight_OI, x_NI = random_layer(5, 60, seed=17)
    with pytest.raises(UnsupportedError, match="groups of 32"):
        GPTQ().quantize(weight_OI, target_of(FORMATS["int4-g32"]), moments_of(x_NI))
