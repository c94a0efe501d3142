"""What the core holds in other codes or dequantized has the values that it had."""

from dataclasses import replace

import numpy as np
import pytest

from paredown.executors.native.native_form import to_native
from paredown.formats.quantize import quantize
from paredown.formats.table import FORMATS
from paredown.spec.run_form import run_form
from paredown.spec.weight import WeightSpec, bits_per_weight

VALUES = np.random.default_rng(0).normal(size=(48, 96)).astype(np.float32)


def held(weight):
    return to_native(weight, run_form(weight.spec, weight.shape[1], scale_dtype=weight.scale_dtype))


WIDER = {"int1": "int2", "int7": "int8"}
NARROW = {
    name: spec
    for name, spec in FORMATS.items()
    if spec.dtype in WIDER and spec.group_size in (None, 32)
}


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_widened_weights_have_the_same_values_bit_for_bit(name: str, dtype) -> None:
    weight = quantize(VALUES, NARROW[name], dtype)
    wider = held(weight)
    assert wider.spec == replace(weight.spec, dtype=WIDER[weight.spec.dtype])
    assert wider.dequantize().tobytes() == weight.dequantize().tobytes()
    assert wider.values_OI.max() < 1 << wider.spec.bits


@pytest.mark.parametrize("dtype", ["int1", "int7"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_every_code_and_zero_point_moves_by_the_difference_of_the_middles(dtype, symmetric) -> None:
    spec = WeightSpec(dtype=dtype, symmetric=symmetric)
    top = 1 << spec.bits
    codes = np.arange(top, dtype=np.uint8)
    weight = quantize(np.ones((top, top), np.float32), spec, "bf16")
    zeros = None if symmetric else codes[:, None]
    weight = replace(weight, values_OI=np.tile(codes, (top, 1)), zero_points_OG=zeros)
    shift = {"int1": 1, "int7": 64}[dtype]
    wider = held(weight)
    assert np.array_equal(wider.values_OI, np.tile(codes + shift, (top, 1)))
    if not symmetric:
        assert np.array_equal(wider.zero_points_OG, codes[:, None] + shift)
    assert np.array_equal(wider.dequantize(), weight.dequantize())


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_groups_without_a_kernel_are_dequantized(dtype) -> None:
    weight = quantize(VALUES, WeightSpec(dtype="int4", group_size=16), dtype)
    floats = held(weight)
    assert floats.spec == WeightSpec(dtype=dtype)
    assert np.array_equal(floats.dequantize(), weight.dequantize())


def test_what_has_a_kernel_stays_as_it_is() -> None:
    for spec in (WeightSpec(dtype="int4", group_size=32), WeightSpec(dtype="int4", group_size=96)):
        weight = quantize(VALUES, spec, "bf16")
        assert held(weight) is weight


def test_the_plan_counts_the_wider_room() -> None:
    def bits(spec: WeightSpec) -> float:
        return run_form(spec, 128).bits_per_weight(128)

    assert bits(FORMATS["int7-g64"]) == bits_per_weight(FORMATS["int8-g64"], 128)
    assert bits(FORMATS["int1-g32-asym"]) == 2 + 18 / 32
    assert bits(WeightSpec(dtype="int4", group_size=16)) == 16
    assert bits(FORMATS["int4-g32"]) == 4.5
