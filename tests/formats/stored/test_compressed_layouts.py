"""Layouts that others write and we only read: what the library compressed has the same bits here
as there."""

import numpy as np
import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from compressed_tensors.quantization.utils.helpers import calculate_qparams
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.scale_layouts import extremes
from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.stored.column_order import NOTE
from paredown.formats.stored.compressed_tensors.form import CompressedForm
from paredown.formats.stored.compressed_tensors.read_section import (
    FP8_INPUTS,
    FP8_INPUTS_OF_INTEGERS,
    TENSOR_INPUTS,
    read_compressed_tensors,
)
from paredown.formats.stored.kv_scheme import STATIC_INT4
from paredown.formats.tensor import StoredTensor
from paredown.spec.weight import WeightSpec

SHAPE = (40, 256)
TOKEN = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
TENSOR = TOKEN | {"strategy": "tensor"}
STATIC = TENSOR | {"dynamic": False}
FP8_TOKEN = TOKEN | {"type": "float"}
FP8_STATIC = STATIC | {"type": "float"}
GROUP = {"strategy": "group", "group_size": 64}
CHANNEL = {"strategy": "channel"}
PER_TENSOR = {"strategy": "tensor"}
BLOCK = {"strategy": "block", "block_structure": [16, 128]}

# Form, weights, inputs.
INTEGERS = [
    ("naive-quantized", strategy | {"num_bits": bits, "symmetric": symmetric}, None)
    for strategy in (GROUP, CHANNEL, PER_TENSOR, BLOCK)
    for bits, symmetric in ((8, True), (8, False), (4, False))
]
INTEGERS += [
    ("int-quantized", strategy | {"num_bits": 8, "symmetric": False}, inputs)
    for strategy in (GROUP, CHANNEL, PER_TENSOR)
    for inputs in (TOKEN, TENSOR, STATIC)
]
INTEGERS += [
    ("pack-quantized", PER_TENSOR | {"num_bits": bits, "symmetric": symmetric}, None)
    for bits in (1, 3, 4, 7, 8)
    for symmetric in (True, False)
]
INTEGERS += [("pack-quantized", GROUP | {"num_bits": 4}, TOKEN)]
FLOATS = [
    (form, strategy | {"num_bits": 8, "type": "float"}, inputs)
    for form in ("float-quantized", "naive-quantized")
    for strategy in (GROUP, CHANNEL, PER_TENSOR, BLOCK)
    for inputs in (None, FP8_TOKEN, FP8_STATIC)
]
LAYOUTS = INTEGERS + FLOATS


def section_of(form: str, weights: dict, inputs: dict | None) -> dict:
    group = {"targets": ["Linear"], "weights": weights, "format": form}
    group |= {} if inputs is None else {"input_activations": inputs}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": [],
    }


def form_of(form: str, weights: dict, inputs: dict | None = None) -> CompressedForm:
    found = read_compressed_tensors(section_of(form, weights, inputs), []).form_for("x")
    assert found is not None
    return found


def from_torch(tensor: torch.Tensor) -> StoredTensor:
    if tensor.dtype == torch.bfloat16:
        return StoredTensor(dtype="BF16", array=tensor.view(torch.uint16).numpy())
    if tensor.dtype == torch.float8_e4m3fn:
        return StoredTensor(dtype="F8_E4M3", array=tensor.view(torch.uint8).numpy())
    names = {torch.float32: "F32", torch.int8: "I8", torch.int32: "I32", torch.int64: "I64"}
    return StoredTensor(dtype=names[tensor.dtype], array=tensor.numpy())


def compress(form: str, weights: dict, inputs: dict | None, seed: int, dtype: torch.dtype):
    """The library's tensors and what it decompresses them to."""
    section = section_of(form, weights, inputs)
    scheme = QuantizationConfig.model_validate(section).config_groups["group_0"]
    torch.manual_seed(seed)
    values = torch.randn(SHAPE).to(dtype)
    scale, zero = calculate_qparams(*extremes(values, weights), scheme.weights)
    state = {"weight": values, "weight_scale": scale, "weight_zero_point": zero}
    compressor = BaseCompressor.get_value_from_registry(form)
    packed = compressor.compress(state, scheme)
    theirs = compressor.decompress(packed, scheme)["weight"].float().numpy()
    if inputs is not None and not inputs["dynamic"]:
        packed["input_scale"] = torch.tensor([0.125])
    return {suffix: from_torch(tensor) for suffix, tensor in packed.items()}, theirs


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("form", "weights", "inputs"), LAYOUTS)
def test_we_read_what_the_library_compressed(form: str, weights, inputs, dtype) -> None:
    tensors, theirs = compress(form, weights, inputs, 0, dtype)
    ours = form_of(form, weights, inputs)
    assert {suffix: one.shape for suffix, one in tensors.items()} == ours.tensor_shapes(SHAPE)
    assert set(ours.suffixes) == set(tensors)
    assert ours.settle(tensors, SHAPE) is ours
    weight = ours.decode(tensors)
    assert weight.spec == ours.spec
    assert np.array_equal(weight.dequantize(), theirs)


@given(rows=st.integers(1, 40), block_rows=st.integers(1, 50), seed=st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_scales_of_blocks_belong_to_the_rows_they_cover(rows, block_rows, seed) -> None:
    rng = np.random.default_rng(seed)
    scales = rng.uniform(0.1, 1, (-(-rows // block_rows), 2)).astype(np.float32)
    codes = rng.integers(0, 0x7F, (rows, 64)).astype(np.uint8)
    tensors = {
        "weight": StoredTensor(dtype="F8_E4M3", array=codes),
        "weight_scale": StoredTensor(dtype="F32", array=scales),
    }
    block = {"strategy": "block", "block_structure": [block_rows, 32]}
    form = form_of("float-quantized", block | {"num_bits": 8, "type": "float"})
    weight = form.decode(tensors)
    assert weight.spec == WeightSpec(dtype="fp8", group_size=32)
    for row in range(rows):
        assert weight.scales_OG[row].tolist() == scales[row // block_rows].tolist()


NOTED = [
    (("float-quantized", CHANNEL | {"type": "float"}, FP8_TOKEN), FP8_INPUTS, "bf16"),
    (("float-quantized", PER_TENSOR | {"type": "float"}, FP8_STATIC), FP8_INPUTS, "bf16"),
    (("int-quantized", CHANNEL | {"num_bits": 8}, TENSOR), TENSOR_INPUTS, "int8_row"),
    (("int-quantized", GROUP | {"num_bits": 4}, FP8_TOKEN), FP8_INPUTS_OF_INTEGERS, "int8_group"),
    (("int-quantized", CHANNEL | {"num_bits": 8}, TOKEN), None, "int8_row"),
    (("int-quantized", CHANNEL | {"num_bits": 8}, STATIC), None, "int8_static"),
    (("pack-quantized", GROUP | {"num_bits": 4}, None), None, "int8_group"),
]


@pytest.mark.parametrize(("layout", "note", "activations"), NOTED)
def test_what_runs_otherwise_than_asked_is_noted(layout, note, activations) -> None:
    form = form_of(*layout)
    assert form.notes == (() if note is None else (note,))
    assert form.spec.activations == activations


def ordered(groups: np.ndarray) -> tuple[CompressedForm, dict[str, StoredTensor], np.ndarray]:
    weights = {"num_bits": 4, "symmetric": False} | GROUP
    tensors, theirs = compress("pack-quantized", weights, None, 1, torch.bfloat16)
    tensors["weight_g_idx"] = StoredTensor(dtype="I32", array=groups.astype(np.int32))
    return form_of("pack-quantized", weights | {"actorder": "group"}), tensors, theirs


def test_an_order_of_columns_that_says_nothing_is_no_matter() -> None:
    form, tensors, theirs = ordered(np.arange(256) // 64)
    assert form.settle(tensors, SHAPE) is form
    assert np.array_equal(form.decode(tensors).dequantize(), theirs)


def test_any_other_order_is_dequantized_with_a_note() -> None:
    """As the library did before it gave the feature up: each column has the scale of its group."""
    groups = np.random.default_rng(0).permutation(np.arange(256) // 64)
    form, tensors, _ = ordered(groups)
    settled = form.settle(tensors, SHAPE)
    assert settled.spec == WeightSpec(dtype="bf16")
    assert settled.notes == (NOTE,)
    plain = form.decode(tensors)
    scales = torch.from_numpy(plain.scales_OG[:, groups]).bfloat16()
    steps = plain.values_OI.astype(np.float32) - plain.zero_points_OG[:, groups]
    expected = (torch.from_numpy(steps).bfloat16() * scales).float().numpy()
    assert np.array_equal(settled.decode(tensors).dequantize(), expected)


@pytest.mark.parametrize("groups", [np.full(256, 4), np.full(256, -1), np.zeros(255, int)])
def test_groups_that_are_not_there_are_named(groups: np.ndarray) -> None:
    form, tensors, _ = ordered(groups)
    with pytest.raises(CheckpointError, match="weight_g_idx"):
        form.settle(tensors, SHAPE)


@pytest.mark.parametrize(
    ("suffix", "array", "dtype", "words"),
    [
        ("weight_zero_point", np.full((40, 4), 8, np.int8), "I8", "4 bits"),
        ("weight_zero_point", np.zeros((40, 3), np.int8), "I8", "wrong dtype or shape"),
        ("weight_zero_point", np.zeros((40, 4), np.uint8), "U8", "wrong dtype or shape"),
        ("weight_scale", np.ones((1,), np.float32), "F32", "wrong dtype or shape"),
        ("weight_scale", np.full((40, 4), np.nan, np.float32), "F32", "not finite"),
        ("weight", np.full(SHAPE, -9, np.int8), "I8", "4 bits"),
    ],
)
def test_what_makes_no_sense_is_named(suffix: str, array, dtype, words: str) -> None:
    layout = ("naive-quantized", GROUP | {"num_bits": 4, "symmetric": False}, None)
    tensors, _ = compress(*layout, 2, torch.float32)
    tensors[suffix] = StoredTensor(dtype=dtype, array=array)
    with pytest.raises(CheckpointError, match=f"{suffix} .*{words}"):
        form_of(*layout).decode(tensors)


def test_blocks_must_divide_the_columns() -> None:
    form = form_of("float-quantized", BLOCK | {"num_bits": 8, "type": "float"})
    with pytest.raises(CheckpointError, match="200 columns in groups of 128"):
        form.tensor_shapes((40, 200))


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (BLOCK | {"block_structure": [0, 128]}, "block_structure"),
        (BLOCK | {"block_structure": "128x128"}, "block_structure"),
        (GROUP | {"block_structure": [16, 128]}, "block_structure"),
        (CHANNEL | {"type": "float", "symmetric": False}, "symmetric"),
    ],
)
def test_weights_that_are_not_known_are_refused(weights: dict, words: str) -> None:
    with pytest.raises((CheckpointError, UnsupportedError), match=words):
        form_of("naive-quantized", {"num_bits": 8} | weights)


@pytest.mark.parametrize(
    ("scheme", "dtype", "notes"),
    [
        (None, None, ()),
        (TOKEN, "int8", ()),
        (TOKEN | {"num_bits": 4}, "int4", ()),
        (STATIC, "int8-static", ()),
        (STATIC | {"num_bits": 4}, "int4", (STATIC_INT4,)),
        (STATIC | {"strategy": "attn_head"}, "int8-static", ()),
        (FP8_STATIC, "fp8-static", ()),
        (FP8_TOKEN, "fp8", ()),
    ],
)
def test_schemes_of_keys_and_values(scheme, dtype: str | None, notes) -> None:
    section = section_of("pack-quantized", GROUP | {"num_bits": 4}, None)
    config = read_compressed_tensors(section | {"kv_cache_scheme": scheme}, [])
    assert (config.kv.dtype, config.notes) == (dtype, notes)
    assert config.kv.section == scheme
    assert bool(config.kv.tensors) == (scheme is not None and not scheme["dynamic"])
