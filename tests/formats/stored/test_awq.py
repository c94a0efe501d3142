"""AWQ's tensors: known words, an independent unpacker, the library's reader, round trips."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from compressed_tensors.entrypoints.convert.converters.autoawq import AutoAWQConverter
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.grid_weight import GridWeight
from paredown.formats.quantize import quantize
from paredown.formats.stored.awq import AWQForm, encode_awq
from paredown.formats.tensor import StoredTensor
from paredown.spec.weight import WeightSpec
from references.packing import awq_values

SPECS = [WeightSpec(dtype="int4", group_size=size, symmetric=False) for size in (None, 32, 64)]


def random_weight(spec: WeightSpec, seed: int, shape: tuple[int, int] = (24, 128)) -> GridWeight:
    rng = np.random.default_rng(seed)
    groups = (shape[0], shape[1] // (spec.group_size or shape[1]))
    return GridWeight(
        spec=spec,
        values_OI=rng.integers(0, 16, shape).astype(np.uint8),
        scales_OG=rng.uniform(0.001, 1, groups).astype(np.float16).astype(np.float32),
        zero_points_OG=None if spec.symmetric else rng.integers(0, 16, groups).astype(np.uint8),
        scale_dtype="fp16",
    )


def test_the_nibbles_of_a_word_belong_to_rows_0_2_4_6_1_3_5_7() -> None:
    weight = random_weight(WeightSpec(dtype="int4", symmetric=False), 0, (8, 8))
    codes = np.zeros((8, 8), np.uint8)
    codes[:, 5] = np.arange(8) + 1
    tensors = encode_awq(
        replace(weight, values_OI=codes, zero_points_OG=np.arange(8, dtype=np.uint8)[:, None])
    )
    assert tensors["qweight"].array.view(np.uint32)[5].tolist() == [0x86427531]
    assert tensors["qzeros"].array.view(np.uint32).tolist() == [[0x75316420]]


def test_symmetric_weights_get_a_zero_point_of_8() -> None:
    spec = WeightSpec(dtype="int4", group_size=32)
    weight = random_weight(spec, 0)
    tensors = encode_awq(weight)
    assert set(tensors["qzeros"].array.view(np.uint32).reshape(-1).tolist()) == {0x88888888}
    again = AWQForm(spec=replace(spec, symmetric=False)).decode(tensors)
    assert np.array_equal(again.dequantize(), weight.dequantize())


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_an_independent_unpacker_finds_our_values(spec: WeightSpec) -> None:
    weight = random_weight(spec, 1)
    stored = {suffix: tensor.array for suffix, tensor in encode_awq(weight).items()}
    values = awq_values(stored, spec.group_size or 128)
    assert np.array_equal(values.astype(np.float16).astype(np.float32), weight.dequantize())


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_the_library_unpacks_our_codes(spec: WeightSpec) -> None:
    weight = random_weight(spec, 2)
    stored = {name: torch.from_numpy(one.array) for name, one in encode_awq(weight).items()}
    converter = AutoAWQConverter(group_size=spec.group_size or 128)
    codes, scales, zeros = converter._convert_gemm_module(
        stored["qweight"], stored["scales"], stored["qzeros"]
    )
    assert np.array_equal(codes.numpy().astype(int) + 8, weight.values_OI)
    assert np.array_equal(scales.float().numpy(), weight.scales_OG)
    assert np.array_equal(zeros.numpy().astype(int) + 8, weight.zero_points_OG)


@given(spec=st.sampled_from(SPECS), seed=st.integers(0, 1000), rows=st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_a_weight_survives_the_round_trip(spec: WeightSpec, seed: int, rows: int) -> None:
    weight = random_weight(spec, seed, (8 * rows, 128))
    tensors = encode_awq(weight)
    form = AWQForm(spec=spec)
    assert {name: one.shape for name, one in tensors.items()} == form.tensor_shapes(weight.shape)
    again = form.decode(tensors)
    assert np.array_equal(again.values_OI, weight.values_OI)
    assert np.array_equal(again.scales_OG, weight.scales_OG)
    assert np.array_equal(again.zero_points_OG, weight.zero_points_OG)
    for suffix, tensor in encode_awq(again).items():
        assert tensor.array.tobytes() == tensors[suffix].array.tobytes()


@pytest.mark.parametrize(
    ("suffix", "array", "dtype", "words"),
    [
        ("scales", np.full((4, 24), np.inf, np.float16), "F16", "scales.*not finite"),
        ("scales", np.ones((3, 24), np.float16), "F16", "scales.*has the wrong"),
        ("qzeros", np.zeros((4, 2), np.int32), "I32", "qzeros.*has the wrong"),
        ("qweight", np.zeros(128, np.int32), "I32", "qweight.*does not have the shape"),
        ("qweight", np.zeros((100, 3), np.int32), "I32", "100 columns in groups of 32"),
        ("qweight", np.zeros((128, 3), np.int64), "I64", "qweight.*has the wrong dtype"),
    ],
)
def test_what_makes_no_sense_is_named(suffix: str, array, dtype, words: str) -> None:
    tensors = encode_awq(random_weight(SPECS[1], 3))
    tensors[suffix] = StoredTensor(dtype=dtype, array=array)
    with pytest.raises(CheckpointError, match=words):
        AWQForm(spec=SPECS[1]).decode(tensors)


def test_other_formats_are_refused() -> None:
    for spec in (WeightSpec(dtype="int8"), WeightSpec(dtype="int4", activations="int8_row")):
        weight = quantize(np.ones((8, 64), np.float32), spec, "fp16")
        with pytest.raises(UnsupportedError, match=spec.name):
            encode_awq(weight)
    narrow = quantize(np.ones((12, 64), np.float32), WeightSpec(dtype="int4"), "fp16")
    with pytest.raises(UnsupportedError, match="12 rows"):
        encode_awq(narrow)
