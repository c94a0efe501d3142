"""compress/activations.py against values rounded one by one, and against the native kernels."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.native_linear import run_linear
from paredown.compress.activations import (
    ActivationGrid,
    StaticScale,
    kernel_group_size,
    parse_grid,
    round_activations,
    round_input,
)
from paredown.errors import ConfigError
from references.activation import (
    FLOATS,
    integer_codes,
    is_beyond,
    nearest_number,
    shared_slices,
)
from references.linear import LinearCase

INTEGERS = [f"int{bits}" for bits in range(1, 9)]
GRANULARITIES = [("tensor", None), ("token", None), ("group", 8), ("group", 5)]


def random_inputs(seed: int, dtype: type = np.float64) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x_TI = rng.standard_normal((4, 24)) * np.exp2(rng.integers(-9, 9, (4, 1)))
    x_TI[1, :8] = 0
    x_TI[2] = np.abs(x_TI[2])
    return x_TI.astype(dtype)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("granularity", "group_size"), GRANULARITIES)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_those_of_the_equations(dtype, granularity, group_size, symmetric) -> None:
    x_TI = random_inputs(int(dtype[3:]))
    if dtype == "int1" and group_size == 5:
        x_TI = x_TI[:, :20]
    grid = ActivationGrid(
        dtype=dtype, granularity=granularity, group_size=group_size, symmetric=symmetric
    )
    rounded = round_activations(torch.from_numpy(x_TI), grid)
    for where in shared_slices(x_TI.shape, granularity, group_size):
        values = x_TI[where].ravel()
        codes, scale, zero = integer_codes(values, grid.bits, symmetric)
        np.testing.assert_array_equal(rounded.codes[where].ravel(), codes)
        expected = [(code - zero) * scale for code in codes]
        np.testing.assert_allclose(rounded.values[where].ravel(), expected, rtol=1e-12)
    assert rounded.num_clamped == 0


@settings(max_examples=40, deadline=None)
@given(
    dtype=st.sampled_from(sorted(FLOATS)),
    share=st.sampled_from(GRANULARITIES),
    seed=st.integers(0, 2**32 - 1),
)
def test_floats_are_the_nearest_numbers(dtype, share, seed) -> None:
    granularity, group_size = share
    x_TI = random_inputs(seed, np.float32)
    grid = ActivationGrid(dtype=dtype, granularity=granularity, group_size=group_size)
    rounded = round_activations(torch.from_numpy(x_TI), grid)
    for where in shared_slices(x_TI.shape, granularity, group_size):
        values = x_TI[where].ravel()
        limit = np.abs(values).max()
        scale, inverse = np.float32(1), np.float32(1)
        if grid.has_scales:
            scale = limit / np.float32(FLOATS[dtype][2])
            inverse = np.float32(FLOATS[dtype][2]) / limit if limit else np.float32(0)
        codes = [nearest_number(float(x * inverse), dtype) for x in values]
        np.testing.assert_array_equal(rounded.codes[where].ravel(), codes)
        expected = np.array(codes, np.float32) * scale
        np.testing.assert_array_equal(rounded.values[where].ravel(), expected)


@pytest.mark.parametrize("dtype", sorted(FLOATS))
def test_what_a_format_cannot_reach_is_clamped_and_counted(dtype) -> None:
    largest = FLOATS[dtype][2]
    shares = np.array([step * 2.0**-fine for fine in (6, 9, 11) for step in range(-9, 10)])
    near = largest * (1 + shares)
    near = near[near < np.finfo(np.float32).max]
    x = np.concatenate([near, -near]).astype(np.float32)
    grid = ActivationGrid(dtype=dtype, granularity="tensor" if dtype[:3] == "fp8" else "token")
    static = StaticScale(scale=1.0) if grid.has_scales else None
    rounded = round_activations(torch.from_numpy(x), grid, static)
    expected = [nearest_number(float(value), dtype) for value in x]
    np.testing.assert_array_equal(rounded.values, expected)
    assert rounded.num_clamped == sum(is_beyond(float(value), dtype) for value in x)
    assert 0 < rounded.num_clamped < x.size


def test_a_static_scale_saturates_and_says_how_often() -> None:
    values = [-1.3, -1.28, -0.005, 0.005, 0.025, 1.27, 1.274, 1.276, 40.0]
    x = torch.tensor([values], dtype=torch.float64)
    grid = ActivationGrid(granularity="tensor")
    rounded = round_activations(x, grid, StaticScale(scale=0.01))
    assert rounded.codes.tolist() == [[-128, -128, 0, 0, 2, 127, 127, 127, 127]]
    assert rounded.num_clamped == 3
    asymmetric = ActivationGrid(granularity="tensor", symmetric=False)
    moved = round_activations(x, asymmetric, StaticScale(scale=0.01, zero=-128))
    assert moved.codes[0, -1] == 127
    assert moved.values.min() == 0.0


def test_one_bit_has_the_scale_of_least_square_error() -> None:
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rounded = round_activations(x, ActivationGrid(dtype="int1"))
    error = (rounded.values - x).square().sum(-1)
    for factor in (0.99, 1.01):
        assert bool(((rounded.values * factor - x).square().sum(-1) > error).all())


def identity_case(columns: int, activations: str, group_size: int, input_scale=None) -> LinearCase:
    """An int8 layer whose output is its rounded input: each row has one code of 1, the scale 1."""
    codes = np.full((columns, columns), 128, np.uint8)
    np.fill_diagonal(codes, 129)
    groups = columns // group_size if group_size < columns else 1
    return LinearCase(
        kind="int8",
        values_OI=codes,
        group_size=group_size,
        scales_OG=np.ones((columns, groups), np.float32),
        activations=activations,
        input_scale=input_scale,
    )


@pytest.mark.parametrize(
    ("activations", "columns", "group_size"),
    [
        ("int8_row", 384, None),
        ("int8_row", 96, None),
        ("int8_static", 384, None),
        ("int8_group", 384, None),
        ("int8_group", 192, None),
        ("int8_group", 80, None),
        ("int8_group", 384, 128),
        ("int8_group", 384, 32),
        ("int16_group", 80, None),
        ("int16_group", 384, None),
        ("int16_group", 384, 128),
        ("int16_group", 384, 32),
    ],
)
def test_inputs_are_bit_for_bit_those_of_the_native_kernels(
    activations, columns, group_size
) -> None:
    rng = np.random.default_rng(columns)
    x_TI = (rng.standard_normal((9, columns)) * np.exp2(rng.integers(-6, 6, (9, 1)))).astype(
        np.float32
    )
    x_TI[3] = 0
    # Codes that lie half way: 127 / 127 * 2.5 and its neighbours.
    x_TI[4] = np.arange(columns) % 255 / 2 - 63.5
    scale = 0.0390625 if activations == "int8_static" else None
    case = identity_case(columns, activations, group_size or columns, scale)
    native = run_linear(case, x_TI, "generic")
    ours = round_input(torch.from_numpy(x_TI), activations, scale, group_size=group_size)
    np.testing.assert_array_equal(ours.numpy(), native)


def test_bf16_inputs_are_the_native_ones() -> None:
    x_TI = np.random.default_rng(1).standard_normal((5, 64)).astype(np.float32)
    ones = (np.eye(64, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    case = LinearCase(kind="bf16", values_OI=ones, group_size=64, activations="bf16")
    native = run_linear(case, x_TI, "generic")
    np.testing.assert_array_equal(round_input(torch.from_numpy(x_TI), "bf16").numpy(), native)


def test_int8_tensor_is_one_scale_for_all_rows() -> None:
    x_TI = torch.from_numpy(random_inputs(5, np.float32))
    limit = float(x_TI.abs().max())
    values = round_input(x_TI, "int8_tensor")
    codes = values / (limit / 127)
    assert float(codes.abs().max()) == pytest.approx(127)
    np.testing.assert_allclose(codes, codes.round(), atol=1e-4)
    assert float((values - x_TI).abs().max()) <= limit / 127 / 2 * 1.0001


@pytest.mark.parametrize(
    ("columns", "group_size", "expected"),
    [(384, None, 128), (192, None, 64), (80, None, 32), (96, None, 32), (384, 64, 64),
     (128, 128, 128)],
)  # fmt: skip
def test_groups_are_those_of_the_kernels(columns, group_size, expected) -> None:
    assert kernel_group_size(columns, group_size) == expected


@pytest.mark.parametrize("dtype", ["int8", "fp8_e4m3", "fp16"])
def test_not_a_number_is_not_hidden(dtype) -> None:
    x = torch.tensor([[1.0, float("nan")], [2.0, 1.0]])
    values = round_activations(x, ActivationGrid(dtype=dtype)).values
    assert bool(values[0].isnan().any())
    assert bool(values[1].isfinite().all())


@pytest.mark.parametrize(
    "name",
    ["int8-tensor", "int1-token", "int4-g128", "int3-g32-asym", "int8-token-asym", "fp8_e5m2-g64",
     "fp8_e4m3-tensor", "fp16", "bf16"],
)  # fmt: skip
def test_a_grid_has_a_name(name: str) -> None:
    assert parse_grid(name).name == name


@pytest.mark.parametrize(
    "name",
    ["", "int8", "int9-token", "int8-g0", "int8-row", "fp8_e4m3-token-asym", "fp16-token", "fp8",
     "int8-token-", "int8-g8-asym-asym"],
)  # fmt: skip
def test_an_unknown_grid_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="no such grid"):
        parse_grid(name)
