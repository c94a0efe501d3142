"""A trained layer begins with the codes that it is given, and stores what it computes with."""

import numpy as np
import pytest
import torch

from paredown.compress.quantize.method import LayerTarget
from paredown.compress.quantize.rtn import RTN
from paredown.distill.quantized.quantized_linear import QuantizedLinear, ScaledCodes
from paredown.formats.grid_weight import GridWeight
from paredown.spec.weight import WeightSpec

SPECS = [
    WeightSpec(dtype="int2", group_size=32),
    WeightSpec(dtype="int3", group_size=64, symmetric=False),
    WeightSpec(dtype="int4"),
    WeightSpec(dtype="int8", symmetric=False),
    WeightSpec(dtype="int4", group_size=16),  # no kernel: runs on bf16 floats
    WeightSpec(dtype="fp8"),
]


def floats(seed: int = 1) -> torch.Tensor:
    return torch.randn(8, 64, generator=torch.Generator().manual_seed(seed))


def rounded(spec: WeightSpec, values_OI: torch.Tensor) -> GridWeight:
    target = LayerTarget(spec=spec, scale_dtype="bf16")
    weight = RTN().quantize(values_OI, target, None).weight
    assert isinstance(weight, GridWeight)
    return weight


def assert_same(one: GridWeight, other: GridWeight) -> None:
    assert np.array_equal(one.values_OI, other.values_OI)
    assert np.array_equal(one.scales_OG, other.scales_OG)
    assert (one.zero_points_OG is None) == (other.zero_points_OG is None)
    if one.zero_points_OG is not None:
        assert np.array_equal(one.zero_points_OG, other.zero_points_OG)


def held(weight: GridWeight) -> np.ndarray:
    has_kernel = weight.spec.has_kernel(weight.shape[1])
    return weight.at_work() if has_kernel else weight.dequantize()


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
@pytest.mark.parametrize("rule", ["learned", "fixed", "minmax"])
@pytest.mark.parametrize("has_floats", [True, False])
def test_it_begins_with_the_codes_that_it_is_given(
    spec: WeightSpec, rule: str, has_floats: bool
) -> None:
    start = rounded(spec, floats())
    # Floats that the codes are not the nearest of, as after GPTQ.
    given = floats() if rule == "minmax" else floats() + 0.3 * floats(2)
    layer = QuantizedLinear(start, None, rule=rule, floats_OI=given if has_floats else None)
    if rule == "minmax" and not has_floats:
        return  # covers the values of codes, whose range is not that of the floats
    assert_same(layer.stored(), start)
    assert np.array_equal(layer.values().detach().numpy(), held(start))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
@pytest.mark.parametrize("rule", ["learned", "fixed", "minmax"])
def test_it_stores_what_it_computes_with(spec: WeightSpec, rule: str) -> None:
    layer = QuantizedLinear(rounded(spec, floats()), None, rule=rule, floats_OI=floats())
    before = layer.stored()
    move(layer)
    after = layer.stored()
    assert (before.values_OI != after.values_OI).any()
    assert np.array_equal(layer.values().detach().numpy(), held(after))
    assert np.array_equal(before.scales_OG, after.scales_OG) == (rule == "fixed")


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_scales_alone_keep_the_codes(spec: WeightSpec) -> None:
    start = rounded(spec, floats()).with_input_scale(0.25)
    layer = ScaledCodes(start, None)
    assert_same(layer.stored(), start)
    assert layer.stored().input_scale == 0.25
    assert np.array_equal(layer.values().detach().numpy(), held(start))
    move(layer)
    after = layer.stored()
    assert np.array_equal(after.values_OI, start.values_OI)
    assert (after.scales_OG != start.scales_OG).any()
    assert np.array_equal(layer.values().detach().numpy(), held(after))


def test_a_scale_stays_above_zero() -> None:
    layer = ScaledCodes(rounded(SPECS[0], floats()), None)
    with torch.no_grad():
        layer.steps.factors.fill_(-1.0)
    assert (layer.steps.scales() > 0).all()


def move(layer: torch.nn.Module) -> None:
    """Changes every parameter as some steps of training would."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
