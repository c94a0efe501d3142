"""Stored forms: bits of a row counted one by one, names that differ, inputs that fit."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.spec.weight import (
    DTYPES,
    INTEGERS,
    KERNEL_COLUMNS,
    ScaleDType,
    WeightDType,
    WeightSpec,
    bits_per_weight,
)

CODED = tuple(dtype for dtype, traits in DTYPES.items() if traits.is_coded)


@st.composite
def weight_specs(draw: st.DrawFn) -> WeightSpec:
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    coded = dtype in CODED
    group_size = draw(st.sampled_from([None, 8, 32, 48, 128])) if coded else None
    plain = WeightSpec(dtype=dtype, group_size=group_size)
    return replace(
        plain,
        symmetric=draw(st.booleans()) if dtype in INTEGERS else True,
        activations=draw(st.sampled_from(plain.possible_activations)),
        integer_steps=plain.takes_integer_steps and draw(st.booleans()),
    )


# Bits of a column's share in scales and minima of groups, and in the numbers of 16 bits of a block.
BESIDE_CODES = {
    "q2_k": (16 * (4 + 4) + 2 * 16) / 256,
    "q3_k": (16 * 6 + 16) / 256,
    "q4_k": (8 * (6 + 6) + 2 * 16) / 256,
    "q5_k": (8 * (6 + 6) + 2 * 16) / 256,
    "q6_k": (16 * 8 + 16) / 256,
    "iq4_xs": (8 * 6 + 16) / 256,
    "q4_1": 2 * 16 / 32,
    "q5_1": 2 * 16 / 32,
    "iq4_nl": 16 / 32,
    "mxfp4": 8 / 32,
}


@given(weight_specs(), st.integers(1, 6), st.sampled_from(["bf16", "fp16", "fp32"]))
def test_a_row_has_its_codes_and_what_each_group_has(
    spec: WeightSpec, num_groups: int, scale_dtype: ScaleDType
) -> None:
    num_columns = num_groups * (spec.group_size or 40)
    bits: float = num_columns * spec.bits
    if spec.dtype in BESIDE_CODES:
        bits += num_columns * BESIDE_CODES[spec.dtype]
    elif spec.is_quantized:
        for _ in range(num_groups if spec.group_size else 1):
            bits += DTYPES[scale_dtype].bits
            if not spec.symmetric:
                bits += spec.bits
    assert bits_per_weight(spec, num_columns, scale_dtype) * num_columns == pytest.approx(bits)


@given(weight_specs())
def test_finer_groups_and_zero_points_cost_bits(spec: WeightSpec) -> None:
    plain = replace(spec, symmetric=True, integer_steps=False)
    if not spec.is_quantized:
        assert bits_per_weight(spec, 256) == spec.bits
        return
    assert bits_per_weight(plain, 256) > spec.bits
    if spec.is_integer:
        shifted = replace(plain, symmetric=False)
        assert bits_per_weight(shifted, 256) > bits_per_weight(plain, 256)
    if spec.group_size is not None and spec.activations == "fp32":
        coarse = replace(plain, group_size=2 * spec.group_size)
        assert bits_per_weight(coarse, 256) < bits_per_weight(plain, 256)


def test_two_specs_that_differ_have_two_names() -> None:
    """All that there are, of the groups in use."""
    specs = set[WeightSpec]()
    for dtype, group_size, symmetric in itertools.product(DTYPES, (None, 32, 128), (True, False)):
        if dtype not in CODED and (group_size or not symmetric):
            continue
        plain = WeightSpec(dtype=dtype, group_size=group_size, symmetric=symmetric)
        for activations, steps in itertools.product(plain.possible_activations, (False, True)):
            if not steps or plain.takes_integer_steps:
                specs.add(replace(plain, activations=activations, integer_steps=steps))
    names = [spec.name for spec in specs]
    assert len(set(names)) == len(names) > 100


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (WeightSpec(dtype="bf16"), "bf16"),
        (WeightSpec(dtype="bf16", activations="fp32"), "bf16-on-fp32"),
        (WeightSpec(dtype="int8", symmetric=False), "int8-asym"),
        (WeightSpec(dtype="int8", activations="int8_row"), "w8a8"),
        (WeightSpec(dtype="int8", activations="int8_static"), "w8a8-static"),
        (WeightSpec(dtype="int4", group_size=32, symmetric=False), "int4-g32-asym"),
        (
            WeightSpec(dtype="int4", group_size=128, activations="int8_row", integer_steps=True),
            "w4a8-g128-qoq",
        ),
        (WeightSpec(dtype="fp8", group_size=128), "fp8-g128"),
    ],
)
def test_names_are_the_fields(spec: WeightSpec, name: str) -> None:
    assert spec.name == name


@given(weight_specs(), st.integers(1, 8))
def test_kernels_sum_whole_blocks_under_one_scale(spec: WeightSpec, num_blocks: int) -> None:
    num_columns = KERNEL_COLUMNS * num_blocks
    group = spec.group_size or num_columns
    ends = range(group, num_columns, group)
    assert spec.has_kernel(num_columns) == all(end % KERNEL_COLUMNS == 0 for end in ends)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_default_input_is_the_first_possible(dtype: WeightDType) -> None:
    spec = WeightSpec(dtype=dtype)
    assert spec.activations == DTYPES[dtype].activations[0]
    assert spec.is_integer == (dtype in INTEGERS)
    assert spec.is_quantized == (dtype in CODED)
    held = DTYPES[dtype].held_as
    if held is not None:
        assert DTYPES[held].bits > spec.bits
        assert DTYPES[held].activations == spec.possible_activations
        assert DTYPES[held].held_as is None


def test_what_no_weight_can_be_is_a_bug() -> None:
    """Groups of fp8 have no sum over a whole row; steps are of int4 groups alone."""
    assert WeightSpec(dtype="fp8").activations == "bf16"
    assert WeightSpec(dtype="fp8", group_size=128).possible_activations == ("fp32",)
    for wrong in (
        {"dtype": "fp8", "group_size": 128, "activations": "bf16"},
        {"dtype": "fp16", "activations": "bf16"},
        {"dtype": "int8", "group_size": 32, "integer_steps": True},
        {"dtype": "int4", "integer_steps": True},
    ):
        with pytest.raises(AssertionError):
            WeightSpec(**wrong)


@pytest.mark.parametrize("activations", ["int8_row", "int8_static", "int8_group", "fp32"])
def test_a_scheme_is_one_scale_for_a_row(activations) -> None:
    spec = WeightSpec(dtype="int8", activations=activations)
    assert spec.has_input_scheme == (activations in ("int8_row", "int8_static"))
