"""fp8 weights against torch's own numbers and the compressed-tensors library."""

import numpy as np
import pytest
import torch
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import quantize as library_quantize
from compressed_tensors.quantization.utils.helpers import calculate_qparams
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from paredown.errors import CheckpointError
from paredown.formats.e4m3 import MAX_FP8, decode_fp8, encode_fp8, has_nan
from paredown.formats.fp8 import quantize_fp8
from paredown.spec.weight import WeightSpec

SPECS = [WeightSpec(dtype="fp8"), WeightSpec(dtype="fp8", group_size=32)]
CODES = np.arange(256, dtype=np.uint8)
NUMBERS = CODES[CODES & 0x7F != 0x7F]


def torch_codes(values: np.ndarray) -> np.ndarray:
    clamped = torch.from_numpy(values).clamp(-MAX_FP8, MAX_FP8)
    return clamped.to(torch.float8_e4m3fn).view(torch.uint8).numpy()


def test_every_code_has_torchs_value() -> None:
    theirs = torch.from_numpy(CODES).view(torch.float8_e4m3fn).float().numpy()
    assert np.array_equal(decode_fp8(CODES), theirs, equal_nan=True)
    assert has_nan(CODES[127:128])
    assert has_nan(CODES[255:])
    assert not has_nan(NUMBERS)


def test_every_number_is_its_own_code() -> None:
    assert np.array_equal(encode_fp8(decode_fp8(NUMBERS)), NUMBERS)


def test_ties_go_to_the_even_code() -> None:
    numbers = decode_fp8(NUMBERS[:127])
    ties = (numbers[:-1] + numbers[1:]) / 2
    assert np.array_equal(encode_fp8(ties), torch_codes(ties))
    assert np.all(encode_fp8(ties) % 2 == 0)


@given(values=hnp.arrays(np.float32, (64,), elements=st.floats(width=32, allow_nan=False)))
@settings(max_examples=200, deadline=None)
def test_any_value_gets_torchs_code(values: np.ndarray) -> None:
    assert np.array_equal(encode_fp8(values), torch_codes(values))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_codes_equal_the_librarys(spec: WeightSpec) -> None:
    values = np.random.default_rng(0).normal(size=(40, 128)).astype(np.float32)
    values[3] = 0
    weight = quantize_fp8(values, spec, "fp32")
    args = QuantizationArgs(
        num_bits=8,
        type="float",
        strategy="group" if spec.group_size else "channel",
        group_size=spec.group_size,
    )
    groups = torch.from_numpy(values).unflatten(1, (-1, spec.group_size or 128))
    scale, zero = calculate_qparams(groups.amin(2), groups.amax(2), args)
    some = np.arange(40) != 3
    np.testing.assert_allclose(weight.scales_OG[some], scale.numpy()[some], rtol=2e-7)
    ours = torch.from_numpy(weight.scales_OG)
    codes = library_quantize(torch.from_numpy(values), ours, zero, args, dtype=torch.float8_e4m3fn)
    assert np.array_equal(weight.values_OI, codes.view(torch.uint8).numpy())


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
@given(
    values=hnp.arrays(np.float32, (2, 64), elements=st.floats(-(2.0**10), 2.0**10, width=32)),
)
@settings(max_examples=30, deadline=None)
def test_the_error_is_at_most_a_sixteenth_or_half_the_smallest_step(spec, dtype, values) -> None:
    weight = quantize_fp8(values, spec, dtype)
    scales = np.repeat(weight.scales_OG, 64 // weight.scales_OG.shape[1], axis=1)
    exact = decode_fp8(weight.values_OI).astype(np.float64) * scales
    nearest = np.clip(values.astype(np.float64), -MAX_FP8 * scales, MAX_FP8 * scales)
    # The quotient that is rounded is a float32 itself.
    bound = np.maximum(np.abs(nearest) / 16, scales * 2.0**-10) * (1 + 1e-5)
    assert np.all(np.abs(exact - nearest) <= bound)
    assert np.all(np.isfinite(weight.dequantize()))


def test_values_that_are_not_finite_are_refused() -> None:
    values = np.ones((2, 64), np.float32)
    values[1, 5] = np.nan
    with pytest.raises(CheckpointError, match=r"\[1, 5\]"):
        quantize_fp8(values, SPECS[0], "bf16")
