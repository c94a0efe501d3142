"""How a stored weight runs: in its own codes, in wider ones, or as floats."""

from dataclasses import replace

import pytest

from paredown.formats.table import FORMATS, STEP_FORMATS
from paredown.spec.run_form import run_form, table_bits
from paredown.spec.weight import DTYPES, SHORT_BF16_BITS, WeightSpec, bits_per_weight


@pytest.mark.parametrize("name", FORMATS)
def test_what_has_a_kernel_takes_the_room_of_what_is_held(name: str) -> None:
    spec = FORMATS[name]
    form = run_form(spec, 256)
    held = DTYPES[spec.dtype].held_as or spec.dtype
    assert (form.kind, form.activations) == (held, spec.activations)
    assert form.asked == form.stored == spec
    assert not form.is_dequantized
    assert form.bits_per_weight(256) == bits_per_weight(replace(spec, dtype=held), 256)


@pytest.mark.parametrize("scale_dtype", ["bf16", "fp16", "fp32"])
def test_groups_that_fill_no_block_run_as_floats_of_their_scales(scale_dtype) -> None:
    spec = WeightSpec(dtype="int4", group_size=48, activations="int8_row")
    form = run_form(spec, 96, scale_dtype=scale_dtype)
    assert (form.kind, form.group_size) == (scale_dtype, None)
    assert form.activations == WeightSpec(dtype=scale_dtype).activations
    assert form.is_dequantized
    assert not form.may_have_steps
    # A group as wide as the row is one scale for it, which has a kernel.
    assert not run_form(spec, 48).is_dequantized


def test_steps_take_a_byte_for_a_group_and_a_scale_for_a_row() -> None:
    for spec in STEP_FORMATS.values():
        plain = run_form(replace(spec, integer_steps=False), 1024)
        assert plain.may_have_steps
        assert plain.with_steps() == replace(run_form(spec, 1024), stored=plain.stored)
        assert plain.with_steps().asked == spec
        per_group = 1 if spec.symmetric else 2
        bits = 4 + 8 * per_group / spec.group_size + 16 / 1024
        assert run_form(spec, 1024).bits_per_weight(1024) == bits


@pytest.mark.parametrize(
    ("group_size", "activations"), [(None, "int8_row"), (32, "int8_group"), (32, "fp32")]
)
def test_steps_are_looked_for_in_groups_whose_inputs_have_one_scale(
    group_size, activations
) -> None:
    spec = WeightSpec(dtype="int4", group_size=group_size, activations=activations)
    assert not run_form(spec, 64).may_have_steps
    assert not run_form(WeightSpec(dtype="int3", group_size=32), 64).may_have_steps


def test_bf16_is_held_shorter_where_its_inputs_are_bf16() -> None:
    for activations, bits in (("bf16", SHORT_BF16_BITS), ("fp32", 16)):
        form = run_form(WeightSpec(dtype="bf16", activations=activations), 64)
        assert form.bits_per_weight(64, short_bf16=True) == bits
        assert form.bits_per_weight(64) == 16


@pytest.mark.parametrize(
    ("spec", "bits"),
    [
        (WeightSpec(dtype="fp16"), 16),
        (WeightSpec(dtype="bf16"), 16),
        (WeightSpec(dtype="int8", group_size=32), 8.5),
        (WeightSpec(dtype="int5", group_size=32), 5.5),
        (WeightSpec(dtype="q6_k"), 6.5625),
        (WeightSpec(dtype="q4_1"), 5),
        # What has no kernel, or rows that are not read on their own, is held in floats.
        (WeightSpec(dtype="fp8"), 32),
        (WeightSpec(dtype="int4", group_size=48), 32),
        (WeightSpec(dtype="int4", group_size=32, activations="int8_row"), 32),
    ],
)
def test_a_table_is_held_as_it_is_where_its_rows_can_be_read(spec: WeightSpec, bits: float) -> None:
    assert table_bits(spec, 768, "fp32") == bits
    assert run_form(spec, 768, scale_dtype="fp32").has_rows == (bits < 32 or spec.group_size == 48)
