"""Integer grids against a float64 loop, against the library's own functions, and as properties."""

import numpy as np
import pytest
import torch
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import quantize as library_quantize
from compressed_tensors.quantization.utils.helpers import calculate_qparams
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.integer import quantize_integer as quantize
from paredown.formats.table import FORMATS
from paredown.spec.weight import WeightSpec
from references.integer import quantize_reference

SPECS = {name: spec for name, spec in FORMATS.items() if spec.is_integer}
SCALE_DTYPES = ("fp32", "bf16", "fp16")
SMALL_SPECS = [
    WeightSpec(dtype=dtype, group_size=group, symmetric=symmetric)
    for dtype in ("int1", "int2", "int3", "int4", "int5", "int6", "int7", "int8")
    for group in (None, 4)
    for symmetric in (True, False)
]


def random_values(seed: int, shape: tuple[int, int] = (16, 256)) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) * rng.uniform(0.001, 3, size=(shape[0], 1))).astype(np.float32)


@pytest.mark.parametrize("dtype", SCALE_DTYPES)
@pytest.mark.parametrize("name", SPECS)
def test_codes_equal_a_float64_loop(name: str, dtype) -> None:
    values = random_values(1)
    weight = quantize(values, SPECS[name], dtype)
    codes, scales, zeros = quantize_reference(values, SPECS[name], dtype)
    np.testing.assert_allclose(weight.scales_OG, scales, rtol=2.0**-7 if dtype != "fp32" else 1e-6)
    assert np.mean(weight.scales_OG == scales) > (0.5 if dtype == "fp32" else 0.99)
    same_scale = np.repeat(weight.scales_OG == scales, values.shape[1] // scales.shape[1], axis=1)
    # float32 and float64 quotients fall on either side of a tie now and then, above all at the
    # largest value, which the symmetric convention puts on one.
    assert np.mean(weight.values_OI[same_scale] != codes[same_scale]) < 0.01
    assert np.abs(weight.values_OI[same_scale].astype(int) - codes[same_scale]).max() <= 1
    if weight.zero_points_OG is not None:
        assert np.abs(weight.zero_points_OG.astype(int) - zeros).max() <= 1


@pytest.mark.parametrize("name", SPECS)
def test_codes_equal_the_librarys(name: str) -> None:
    """In float32, where the library too computes in float32."""
    spec, values = SPECS[name], random_values(2)
    weight = quantize(values, spec, "fp32")
    args = QuantizationArgs(
        num_bits=spec.bits,
        symmetric=spec.symmetric,
        strategy="group" if spec.group_size else "channel",
        group_size=spec.group_size,
    )
    groups = torch.from_numpy(values).unflatten(1, (-1, spec.group_size or values.shape[1]))
    scale, zero = calculate_qparams(groups.amin(2), groups.amax(2), args)
    codes = library_quantize(torch.from_numpy(values), scale, zero, args, dtype=torch.int8)
    half = 2 ** (spec.bits - 1)
    differing = weight.scales_OG != scale.numpy()
    np.testing.assert_allclose(weight.scales_OG, scale.numpy(), rtol=2e-7)
    same = np.repeat(~differing, values.shape[1] // scale.shape[1], axis=1)
    assert same.mean() > 0.6
    assert np.array_equal(weight.values_OI[same], (codes.numpy().astype(int) + half)[same])
    if not spec.symmetric:
        assert np.array_equal(weight.zero_points_OG, zero.numpy().astype(int) + half)


@pytest.mark.parametrize("dtype", SCALE_DTYPES)
@pytest.mark.parametrize("spec", SMALL_SPECS, ids=lambda spec: spec.name)
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_the_error_is_at_most_half_a_step_inside_the_range(spec, dtype, data) -> None:
    limit = 1000.0
    values = data.draw(
        hnp.arrays(np.float32, (2, 8), elements=st.floats(-limit, limit, width=32)), label="values"
    )
    weight = quantize(values, spec, dtype)
    num_groups = weight.scales_OG.shape[1]
    scale = np.repeat(weight.scales_OG, 8 // num_groups, axis=1).astype(np.float64)
    half = 2 ** (spec.bits - 1)
    zero = np.zeros_like(scale)
    if weight.zero_points_OG is not None:
        zero = np.repeat(weight.zero_points_OG, 8 // num_groups, axis=1) - float(half)
    low, high = (-half - zero) * scale, (half - 1 - zero) * scale
    exact = (weight.values_OI.astype(np.float64) - half - zero) * scale
    nearest = np.clip(values.astype(np.float64), low, high)
    assert np.all(np.abs(exact - nearest) <= scale * (0.5 + 1e-4 * half))
    assert np.all(exact[values == 0] == 0)
    assert np.all(np.isfinite(weight.dequantize()))


@pytest.mark.parametrize("spec", SMALL_SPECS, ids=lambda spec: spec.name)
@given(
    values=hnp.arrays(np.float32, (2, 8), elements=st.floats(-(2.0**60), 2.0**60, width=32)),
)
@settings(max_examples=30, deadline=None)
def test_dequantized_values_find_their_codes_again(spec, values) -> None:
    weight = quantize(values, spec, "fp32")
    half = 2 ** (spec.bits - 1)
    size = 8 // weight.scales_OG.shape[1]
    zeros = np.full((2, 8), float(half))
    if weight.zero_points_OG is not None:
        zeros = np.repeat(weight.zero_points_OG, size, axis=1).astype(float)
    scales = np.repeat(weight.scales_OG, size, axis=1)
    codes = np.rint(weight.dequantize().astype(np.float64) / scales + zeros)
    assert np.array_equal(codes, weight.values_OI)


@pytest.mark.parametrize("dtype", SCALE_DTYPES)
@pytest.mark.parametrize("name", SPECS)
def test_rows_of_zeros_stay_zero(name: str, dtype) -> None:
    values = random_values(3)
    values[4] = 0
    values[5, :128] = 0
    restored = quantize(values, SPECS[name], dtype).dequantize()
    assert np.all(restored[4] == 0)
    assert np.all(np.isfinite(restored))


@pytest.mark.parametrize("dtype", SCALE_DTYPES)
@pytest.mark.parametrize("magnitude", [1e-44, 1e-30, 1e30, 3e38])
def test_extreme_magnitudes_stay_finite(magnitude: float, dtype) -> None:
    values = (np.array([[-1, 1, 0.5, 0]]) * magnitude).astype(np.float32)
    for spec in (WeightSpec(dtype="int4"), WeightSpec(dtype="int4", symmetric=False)):
        weight = quantize(values, spec, dtype)
        assert np.all(weight.scales_OG > 0)
        assert np.all(np.isfinite(weight.scales_OG))


def test_large_weights_are_quantized_in_chunks_alike() -> None:
    values = random_values(5, (3000, 512))
    weight = quantize(values, SPECS["int4-g128"], "bf16")
    for rows in (slice(0, 7), slice(2040, 2060), slice(2990, 3000)):
        part = quantize(values[rows], SPECS["int4-g128"], "bf16")
        assert np.array_equal(part.values_OI, weight.values_OI[rows])
        assert np.array_equal(part.scales_OG, weight.scales_OG[rows])


def test_a_group_that_does_not_divide_is_named() -> None:
    with pytest.raises(UnsupportedError, match=r"128.*192"):
        quantize(np.zeros((2, 192), np.float32), SPECS["int4-g128"], "bf16")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    values = random_values(4)
    values[3, 7] = value
    with pytest.raises(CheckpointError, match=r"\[3, 7\]"):
        quantize(values, SPECS["int8"], "bf16")
