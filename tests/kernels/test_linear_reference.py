"""The reference of the native linear layers against torch where torch knows the same number."""

import numpy as np
import pytest
import torch

from references.linear import (
    DEFAULT_ACTIVATIONS,
    INTEGER_BITS,
    bf16_input,
    dequantized,
    fp8_value,
    linear_reference,
    random_case,
    seen_input,
)


def test_fp8_values_are_torchs() -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)
    ours = np.array([fp8_value(code) for code in range(256)])
    assert np.array_equal(ours, codes.to(torch.float64).numpy(), equal_nan=True)


def test_bf16_inputs_round_as_torchs() -> None:
    x = np.random.default_rng(0).normal(size=(50, 40)).astype(np.float32)
    x[0, :3] = [1 + 2.0**-8, 1 + 3 * 2.0**-8, -(1 + 2.0**-8)]
    assert np.array_equal(bf16_input(x), torch.from_numpy(x).bfloat16().double().numpy())


READINGS = ["int8_group", "int16_group", "int8_row", "int8_static", "bf16", "fp32"]


@pytest.mark.parametrize("activations", READINGS)
def test_each_reading_of_the_input_is_near_it(activations: str) -> None:
    rng = np.random.default_rng(1)
    case = random_case(rng, "int4", (8, 128), group_size=32, activations=activations)
    x = rng.normal(size=(5, 128)).clip(-2.5, 2.5).astype(np.float32)
    bounds = {"fp32": 0.0, "bf16": 2.5 / 256, "int16_group": 2.5 / 127 / 100}
    bound = bounds.get(activations, 2.5 / 127)
    assert np.abs(seen_input(case, x) - x).max() <= bound


def test_static_inputs_saturate() -> None:
    case = random_case(np.random.default_rng(2), "int8", (4, 32), activations="int8_static")
    assert case.input_scale is not None
    seen = seen_input(case, np.full((1, 32), 1e6, np.float32))
    assert np.allclose(seen, 127 * case.input_scale)


@pytest.mark.parametrize("kind", list(DEFAULT_ACTIVATIONS))
def test_random_weights_are_finite_and_use_the_whole_range(kind: str) -> None:
    case = random_case(np.random.default_rng(3), kind, (32, 128), group_size=64, symmetric=False)
    weight = dequantized(case)
    assert np.isfinite(weight).all()
    assert (weight < 0).any()
    assert (weight > 0).any()
    if kind in INTEGER_BITS:
        assert case.values_OI.max() == 2 ** INTEGER_BITS[kind] - 1
    x = np.zeros((2, 128), np.float32)
    assert np.array_equal(linear_reference(case, x), np.stack([case.bias_O, case.bias_O]))
