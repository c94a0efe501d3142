"""Formats of a running model: bytes, the arithmetic they need, and their names."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.cost.model_formats import ModelFormats, ZeroWeights, kv_element_bytes, unit_of
from paredown.formats.table import FORMATS
from paredown.spec.kv import KV_DTYPES, KVDType
from paredown.spec.weight import SHORT_BF16_BITS, WeightSpec

BF16 = WeightSpec(dtype="bf16")


@pytest.mark.parametrize(
    ("name", "core", "gpu"),
    [
        ("fp32", "fp32", "fp32"),
        ("fp16", "fp32", "bf16"),
        ("bf16", "bf16", "bf16"),
        ("fp8", "bf16", "bf16"),
        ("fp8-g128", "fp32", "bf16"),
        ("int8", "int8", "int8"),
        ("w8a8", "int8", "int8"),
        ("int4-g32", "int8", "int8"),
    ],
)
def test_the_peak_that_binds(name: str, core: str, gpu: str) -> None:
    """Our core differs from a machine where numbers between operations take two bytes."""
    assert unit_of(FORMATS[name], 4) == core
    assert unit_of(FORMATS[name], 2) == gpu


def test_weights_for_float_inputs_are_multiplied_in_floats() -> None:
    spec = WeightSpec(dtype="int4", group_size=32, activations="fp32")
    assert unit_of(spec, 4) == "fp32"
    assert unit_of(spec, 2) == "bf16"


@pytest.mark.parametrize("name", FORMATS)
@given(num_blocks=st.integers(1, 64))
def test_weights_take_their_bits_exactly(name: str, num_blocks: int) -> None:
    """A row of whole groups has a whole number of bits: nothing is lost in a float."""
    spec = FORMATS[name]
    held = {"int7": 8, "int1": 2}.get(spec.dtype, spec.bits)
    num_columns = num_blocks * (spec.group_size or 128)
    bits = num_columns * held
    if spec.is_quantized:
        num_groups = num_blocks if spec.group_size else 1
        bits += num_groups * (16 + (0 if spec.symmetric else held))
    found = ModelFormats().weight_bytes(spec, num_columns) * 8 * num_columns
    assert float(found) == pytest.approx(bits, rel=1e-12)


def test_bf16_is_shorter_where_the_core_packs_it() -> None:
    plain = ModelFormats()
    short = replace(plain, short_bf16=True)
    assert plain.weight_bytes(BF16, 64) == 2
    assert short.weight_bytes(BF16, 64) == Fraction(SHORT_BF16_BITS) / 8
    for other in (WeightSpec(dtype="fp16"), replace(BF16, activations="fp32")):
        assert short.weight_bytes(other, 64) == plain.weight_bytes(other, 64) == 2


@pytest.mark.parametrize("dtype", KV_DTYPES)
@pytest.mark.parametrize("head_dim", [16, 64, 128])
def test_a_number_of_a_key_has_its_share_of_the_scale(dtype: KVDType, head_dim: int) -> None:
    bits = {"bf16": 16, "fp32": 32, "int4": 4}.get(dtype, 8)
    scale = 0 if dtype in ("bf16", "fp32") else Fraction(2, head_dim)
    assert kv_element_bytes(dtype, head_dim) == Fraction(bits, 8) + scale


def test_names_say_what_differs() -> None:
    int4 = WeightSpec(dtype="int4", group_size=32)
    assert ModelFormats().name == "bf16, KV bf16"
    assert ModelFormats(linear=int4).name == "int4-g32, output bf16, KV bf16"
    assert ModelFormats(linear=int4, output=int4, kv_dtype="int8").name == "int4-g32, KV int8"
    mixed = ModelFormats(kv_dtype=("bf16", "int4", "int4", "bf16"))
    assert mixed.kv_name == "2 bf16 + 2 int4"
    assert mixed.kv_dtypes == ("bf16", "int4")
    assert ModelFormats(kv_dtype="fp8").kv_dtypes == ("fp8",)


@pytest.mark.parametrize(
    ("name", "zeros", "bits"),
    [
        ("bf16", 0.5, 9),
        ("bf16", 0.46, 16),  # a bitmap would take 9.64
        ("int8", 0.5, 5),
        ("int8", 0.33, 6.36),
        ("int8", 0.32, 8),  # 6.44
        ("int4-g32", 0.9, 4),
        ("int8-asym", 0.9, 8),
        ("fp32", 0.9, 32),
    ],
)
def test_zeros_take_a_bit_where_that_pays(name: str, zeros: float, bits: float) -> None:
    dense = ModelFormats(linear=FORMATS[name])
    sparse = replace(dense, zeros=(ZeroWeights(part=1.0, zeros=zeros),))
    scales = float(dense.linear_bytes(1024)) * 8 - FORMATS[name].bits
    assert float(sparse.linear_bytes(1024)) * 8 - scales == pytest.approx(bits)
    gpu = replace(sparse, activation_bytes=2)
    assert gpu.linear_bytes(1024) == dense.linear_bytes(1024)


def test_zeros_of_a_part_save_their_part() -> None:
    dense = ModelFormats(linear=FORMATS["int8"])
    parts = (ZeroWeights(part=0.5, zeros=0.75), ZeroWeights(part=0.25, zeros=0.1))
    sparse = replace(dense, zeros=parts)
    saved = float(dense.linear_bytes(1024) - sparse.linear_bytes(1024)) * 8
    assert saved == pytest.approx(0.5 * (8 - 3))
    assert sparse.name == "int8 with 40% zeros, output bf16, KV bf16"
