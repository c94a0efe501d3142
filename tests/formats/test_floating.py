"""Float casts against torch's, and the count of clamped values."""

import numpy as np
import pytest
import torch

from paredown.errors import CheckpointError
from paredown.formats.floating import MAX_FINITE, cast
from paredown.formats.grid_weight import float_weight
from paredown.formats.table import FORMATS
from paredown.spec.weight import WeightSpec, bits_per_weight

TORCH_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@pytest.mark.parametrize("dtype", TORCH_DTYPES)
def test_values_equal_torchs(dtype) -> None:
    rng = np.random.default_rng(0)
    values = (rng.normal(size=(64, 64)) * 10.0 ** rng.integers(-9, 4, (64, 64))).astype(np.float32)
    weight, num_clamped = float_weight(values, dtype)
    expected = torch.from_numpy(values).to(TORCH_DTYPES[dtype]).float().numpy()
    assert np.array_equal(weight.dequantize(), expected)
    assert num_clamped == 0
    assert weight.spec == WeightSpec(dtype=dtype)


def test_what_fp16_cannot_reach_is_clamped_and_counted() -> None:
    values = np.array([[65504.0, 65519.0, 65520.0, -1e30, 1.0, np.finfo(np.float32).max]])
    weight, num_clamped = float_weight(values.astype(np.float32), "fp16")
    assert num_clamped == 3
    expected = [65504.0, 65504.0, 65504.0, -65504.0, 1.0, 65504.0]
    assert weight.dequantize().tolist() == [expected]


def test_bf16_never_rounds_to_infinity() -> None:
    values = np.array([np.finfo(np.float32).max, -np.finfo(np.float32).max], np.float32)
    result = cast(values, "bf16")
    assert result.num_clamped == 2
    assert result.tensor.to_float32().tolist() == [MAX_FINITE["bf16"], -MAX_FINITE["bf16"]]
    assert MAX_FINITE["bf16"] == torch.finfo(torch.bfloat16).max


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(CheckpointError, match="not finite"):
        cast(np.array([1.0, value], np.float32), "fp16")


def test_bits_per_weight_count_scales_and_zero_points() -> None:
    assert bits_per_weight(FORMATS["bf16"], 512) == 16
    assert bits_per_weight(FORMATS["int8"], 512) == 8 + 16 / 512
    assert bits_per_weight(FORMATS["fp8"], 512) == 8 + 16 / 512
    assert bits_per_weight(FORMATS["int4-g128"], 512) == 4.125
    assert bits_per_weight(FORMATS["int4-g128-asym"], 512) == 4 + 20 / 128
    assert bits_per_weight(FORMATS["int4-g32"], 512, "fp32") == 5.0
    assert bits_per_weight(FORMATS["int3-g64"], 512) == 3.25


def test_rows_are_under_their_own_names() -> None:
    for name, spec in FORMATS.items():
        assert spec.name == name
