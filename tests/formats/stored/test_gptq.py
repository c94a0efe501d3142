"""GPTQ's tensors: known words, an independent unpacker, round trips, and what can be wrong."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.grid_weight import GridWeight
from paredown.formats.quantize import quantize
from paredown.formats.stored.column_order import NOTE
from paredown.formats.stored.gptq import WRAPPED, GPTQForm, encode_gptq
from paredown.formats.tensor import StoredTensor
from paredown.spec.weight import WeightSpec
from references.packing import gptq_values

BITS = {2: "int2", 3: "int3", 4: "int4", 8: "int8"}
SPECS = [
    WeightSpec(dtype=dtype, group_size=group_size, symmetric=symmetric)
    for dtype in BITS.values()
    for group_size in (None, 32)
    for symmetric in (True, False)
]


def random_weight(spec: WeightSpec, seed: int, shape: tuple[int, int] = (32, 96)) -> GridWeight:
    """Codes and zero points over their whole range; version 1 has no zero point of 0."""
    rng = np.random.default_rng(seed)
    groups = (shape[0], shape[1] // (spec.group_size or shape[1]))
    top = 1 << spec.bits
    return GridWeight(
        spec=spec,
        values_OI=rng.integers(0, top, shape).astype(np.uint8),
        scales_OG=rng.uniform(0.001, 1, groups).astype(np.float16).astype(np.float32),
        zero_points_OG=None if spec.symmetric else rng.integers(1, top, groups).astype(np.uint8),
        scale_dtype="fp16",
    )


def arrays(tensors: dict[str, StoredTensor]) -> dict[str, np.ndarray]:
    return {suffix: tensor.array for suffix, tensor in tensors.items()}


def assert_same(some: GridWeight, other: GridWeight) -> None:
    assert (some.spec, some.scale_dtype) == (other.spec, other.scale_dtype)
    assert np.array_equal(some.values_OI, other.values_OI)
    assert np.array_equal(some.scales_OG, other.scales_OG)
    if other.zero_points_OG is None:
        assert some.zero_points_OG is None
    else:
        assert np.array_equal(some.zero_points_OG, other.zero_points_OG)


@pytest.mark.parametrize(
    ("bits", "version", "word"),
    [
        (4, 1, 0x77777777),
        (4, 2, 0x88888888),
        (2, 1, 0x55555555),
        (2, 2, 0xAAAAAAAA),
        (8, 1, 0x7F7F7F7F),
        (8, 2, 0x80808080),
    ],
)
def test_symmetric_zero_points_are_the_known_words(bits: int, version, word: int) -> None:
    tensors = encode_gptq(random_weight(WeightSpec(dtype=BITS[bits]), 0), version)
    assert set(tensors["qzeros"].array.view(np.uint32).reshape(-1).tolist()) == {word}


def test_three_bit_zero_points_straddle_words() -> None:
    """011 011 ... (version 1) and 100 100 ... (version 2), low bits first, over three words."""
    for version, field in ((1, 0b011), (2, 0b100)):
        tensors = encode_gptq(random_weight(WeightSpec(dtype="int3"), 0), version)
        stream = sum(field << 3 * i for i in range(32))
        words = [stream >> 32 * i & 0xFFFFFFFF for i in range(3)]
        assert tensors["qzeros"].array.view(np.uint32).tolist() == [words]


def test_codes_are_packed_down_the_rows_low_bits_first() -> None:
    weight = random_weight(WeightSpec(dtype="int4"), 0, (8, 8))
    codes = np.zeros((8, 8), np.uint8)
    codes[3] = np.arange(1, 9)
    tensors = encode_gptq(replace(weight, values_OI=codes), 1)
    assert tensors["qweight"].array.view(np.uint32).tolist() == [[0, 0, 0, 0x87654321, 0, 0, 0, 0]]
    assert tensors["qweight"].shape == (1, 8)
    assert tensors["g_idx"].array.tolist() == [0] * 8


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_an_independent_unpacker_finds_our_values(spec: WeightSpec, version) -> None:
    weight = random_weight(spec, 1)
    tensors = encode_gptq(weight, version)
    values = gptq_values(arrays(tensors), spec.bits, version)
    assert np.array_equal(values.astype(np.float16).astype(np.float32), weight.dequantize())


@pytest.mark.parametrize("version", [1, 2])
@given(spec=st.sampled_from(SPECS), seed=st.integers(0, 1000), rows=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_a_weight_survives_the_round_trip(version, spec: WeightSpec, seed: int, rows: int) -> None:
    weight = random_weight(spec, seed, (32 * rows, 64))
    tensors = encode_gptq(weight, version)
    form = GPTQForm(spec=spec, version=version)
    shapes = form.tensor_shapes(weight.shape)
    assert {suffix: tensor.shape for suffix, tensor in tensors.items()} == shapes
    assert form.settle(tensors, weight.shape) is form
    again = form.decode(tensors)
    assert_same(again, weight)
    for suffix, tensor in encode_gptq(again, version).items():
        assert tensor.dtype == tensors[suffix].dtype
        assert tensor.array.tobytes() == tensors[suffix].array.tobytes()


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_version_1_zero_points_that_wrapped_around_are_read_as_gptqmodel_does(bits: int) -> None:
    """It subtracts and adds one constant for all fields of a word, so that borrows come back."""
    spec = WeightSpec(dtype=BITS[bits], group_size=32, symmetric=False)
    weight = random_weight(spec, 2)
    zeros = np.random.default_rng(3).integers(0, 1 << bits, (32, 3)).astype(np.uint8)
    weight = replace(weight, zero_points_OG=zeros)
    second = encode_gptq(weight, 2)
    ones = np.uint32(sum(1 << shift for shift in range(0, 32, bits)))
    first = (second["qzeros"].array.view(np.uint32) - ones).view(np.int32)
    tensors = {**second, "qzeros": StoredTensor(dtype="I32", array=first)}
    form = GPTQForm(spec=spec, version=1).settle(tensors, weight.shape)
    assert form.notes == (WRAPPED,)
    assert_same(form.decode(tensors), weight)


def test_version_1_has_no_place_for_a_zero_point_of_0() -> None:
    spec = WeightSpec(dtype="int4", group_size=32, symmetric=False)
    weight = random_weight(spec, 2)
    weight.zero_points_OG[5, 1] = 0
    with pytest.raises(UnsupportedError, match=r"zero point of 0.*1 of them.*gptq-v2"):
        encode_gptq(weight, 1)
    assert_same(GPTQForm(spec=spec, version=2).decode(encode_gptq(weight, 2)), weight)


@pytest.mark.parametrize("bits", [3, 4])
@pytest.mark.parametrize("symmetric", [True, False])
def test_any_other_order_of_columns_is_dequantized_with_a_note(bits: int, symmetric: bool) -> None:
    spec = WeightSpec(dtype=BITS[bits], group_size=32, symmetric=symmetric)
    weight = random_weight(spec, 4)
    groups = np.random.default_rng(5).permutation(np.arange(96) // 32).astype(np.int32)
    tensors = {**encode_gptq(weight, 2), "g_idx": StoredTensor(dtype="I32", array=groups)}
    form = GPTQForm(spec=spec, version=2).settle(tensors, weight.shape)
    assert form.spec == WeightSpec(dtype="fp16")
    assert form.notes == (NOTE,)
    expected = gptq_values(arrays(tensors), bits, 2).astype(np.float16)
    assert np.array_equal(form.decode(tensors).values_OI, expected)
    assert not np.array_equal(expected.astype(np.float32), weight.dequantize())


def damaged(spec: WeightSpec, suffix: str, array: np.ndarray, dtype: str) -> GPTQForm:
    weight = random_weight(spec, 6)
    tensors = {**encode_gptq(weight, 2), suffix: StoredTensor(dtype=dtype, array=array)}
    form = GPTQForm(spec=spec, version=2).settle(tensors, weight.shape)
    form.decode(tensors)


@pytest.mark.parametrize(
    ("suffix", "array", "dtype", "words"),
    [
        ("g_idx", np.zeros(95, np.int32), "I32", "g_idx.*96"),
        ("g_idx", np.full(96, 3, np.int32), "I32", "g_idx.*names groups beyond 0 to 2"),
        ("g_idx", np.full(96, -1, np.int32), "I32", "g_idx.*names groups beyond"),
        ("g_idx", np.zeros(96, np.float32), "F32", "g_idx.*has the wrong dtype"),
        ("scales", np.full((3, 32), np.nan, np.float16), "F16", "scales.*not finite"),
        ("scales", np.ones((4, 32), np.float16), "F16", "scales.*has the wrong"),
        ("qzeros", np.zeros((3, 3), np.int32), "I32", "qzeros.*has the wrong"),
        ("qzeros", np.zeros((3, 4), np.int32), "I32", "not 8 throughout, though sym is true"),
        ("qweight", np.zeros((0, 32), np.int32), "I32", "qweight.*does not have the shape"),
        ("qweight", np.zeros((12, 32), np.int64), "I64", "qweight.*has the wrong dtype"),
    ],
)
def test_what_makes_no_sense_is_named(suffix, array, dtype, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        damaged(WeightSpec(dtype="int4", group_size=32), suffix, array, dtype)


def test_groups_must_divide_the_columns_unless_their_order_is_given() -> None:
    spec = WeightSpec(dtype="int4", group_size=64)
    stored = random_weight(WeightSpec(dtype="int4", group_size=48), 6)
    tensors = encode_gptq(stored, 2)
    tensors["g_idx"] = StoredTensor(dtype="I32", array=(np.arange(96) // 64).astype(np.int32))
    with pytest.raises(CheckpointError, match="groups of 64 columns"):
        GPTQForm(spec=spec, version=2).settle(tensors, (32, 96))


@pytest.mark.parametrize(
    "spec",
    [
        WeightSpec(dtype="int5", group_size=32),
        WeightSpec(dtype="int1"),
        WeightSpec(dtype="fp8"),
        WeightSpec(dtype="int8", activations="int8_row"),
    ],
    ids=lambda spec: spec.name,
)
def test_other_formats_are_refused(spec: WeightSpec) -> None:
    weight = quantize(np.ones((32, 64), np.float32), spec, "fp16")
    with pytest.raises(UnsupportedError, match=spec.name):
        encode_gptq(weight, 2)


def test_codes_that_do_not_fill_words_are_refused() -> None:
    for shape in ((12, 64), (32, 36)):
        weight = quantize(np.ones(shape, np.float32), WeightSpec(dtype="int4"), "fp16")
        with pytest.raises(UnsupportedError, match="whole words"):
            encode_gptq(weight, 2)


def test_scales_must_be_fp16_numbers() -> None:
    weight = random_weight(WeightSpec(dtype="int4"), 7)
    bf16 = np.array([1.5 * 2.0**-8], np.float32)
    kept = replace(weight, scales_OG=np.repeat(bf16[None], 32, 0), scale_dtype="bf16")
    assert GPTQForm(spec=weight.spec, version=2).decode(encode_gptq(kept, 2)).scales_OG[0] == bf16
    for scale in (1e-30, 1e10, 1 + 2.0**-20):
        bad = replace(kept, scales_OG=np.full((32, 1), scale, np.float32))
        with pytest.raises(UnsupportedError, match="not fp16 numbers"):
            encode_gptq(bad, 2)
