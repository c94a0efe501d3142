"""The stored form against the compressed-tensors library, both ways, bit for bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from compressed_tensors.quantization.utils.helpers import calculate_qparams

from paredown.errors import CheckpointError
from paredown.formats.grid_weight import GridWeight
from paredown.formats.quantize import quantize
from paredown.formats.stored.compressed_tensors.form import encode, form_of, written_form
from paredown.formats.stored.compressed_tensors.write_section import quantization_config
from paredown.formats.table import FORMATS
from paredown.formats.tensor import StoredTensor
from paredown.spec.weight import WeightSpec

SPECS = {name: spec for name, spec in FORMATS.items() if spec.is_quantized}
TORCH_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# Rows that are no multiple of a word's 8 or 4 codes, so that packed zero points end in padding.
SHAPE = (37, 256)


def decode(tensors: dict[str, StoredTensor], spec: WeightSpec) -> GridWeight:
    return written_form(spec).decode(tensors)


def random_values(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)


def scheme_of(spec: WeightSpec):
    config = QuantizationConfig.model_validate(quantization_config(spec, ["lm_head"]))
    return config.config_groups["group_0"]


def compressor_of(spec: WeightSpec):
    return BaseCompressor.get_value_from_registry(form_of(spec))


def to_torch(stored: StoredTensor) -> torch.Tensor:
    tensor = torch.from_numpy(stored.array.copy())
    views = {"BF16": torch.bfloat16, "F8_E4M3": torch.float8_e4m3fn}
    return tensor.view(views[stored.dtype]) if stored.dtype in views else tensor


def from_torch(tensor: torch.Tensor) -> StoredTensor:
    if tensor.dtype == torch.bfloat16:
        return StoredTensor(dtype="BF16", array=tensor.view(torch.uint16).numpy())
    if tensor.dtype == torch.float8_e4m3fn:
        return StoredTensor(dtype="F8_E4M3", array=tensor.view(torch.uint8).numpy())
    names = {
        torch.float32: "F32",
        torch.float16: "F16",
        torch.int8: "I8",
        torch.int32: "I32",
        torch.int64: "I64",
    }
    return StoredTensor(dtype=names[tensor.dtype], array=tensor.numpy())


@pytest.mark.parametrize("dtype", TORCH_DTYPES)
@pytest.mark.parametrize("name", SPECS)
def test_the_library_decompresses_what_we_wrote(name: str, dtype) -> None:
    weight = quantize(random_values(0), SPECS[name], dtype)
    stored = encode(weight)
    assert set(stored) == set(written_form(SPECS[name]).suffixes)
    scheme = scheme_of(SPECS[name])
    compressor = compressor_of(SPECS[name])
    assert set(stored) == set(compressor.compression_param_names(scheme))
    state = {suffix: to_torch(tensor) for suffix, tensor in stored.items()}
    theirs = compressor.decompress(state, scheme)["weight"]
    assert theirs.dtype == TORCH_DTYPES[dtype]
    assert np.array_equal(theirs.float().numpy(), weight.dequantize())


@pytest.mark.parametrize("dtype", TORCH_DTYPES)
@pytest.mark.parametrize("name", SPECS)
def test_we_read_what_the_library_compressed(name: str, dtype) -> None:
    spec, scheme = SPECS[name], scheme_of(SPECS[name])
    values = torch.from_numpy(random_values(1)).to(TORCH_DTYPES[dtype])
    groups = values.unflatten(1, (-1, spec.group_size or SHAPE[1]))
    scale, zero = calculate_qparams(groups.amin(2), groups.amax(2), scheme.weights)
    state = {"weight": values, "weight_scale": scale, "weight_zero_point": zero}
    packed = compressor_of(spec).compress(state, scheme)
    weight = decode({suffix: from_torch(tensor) for suffix, tensor in packed.items()}, spec)
    theirs = compressor_of(spec).decompress(packed, scheme)["weight"]
    assert weight.scale_dtype == dtype
    assert np.array_equal(theirs.float().numpy(), weight.dequantize())


@pytest.mark.parametrize("name", SPECS)
def test_a_weight_survives_the_round_trip(name: str) -> None:
    weight = quantize(random_values(2), SPECS[name], "bf16")
    again = decode(encode(weight), SPECS[name])
    assert np.array_equal(again.values_OI, weight.values_OI)
    assert np.array_equal(again.scales_OG, weight.scales_OG)
    assert again.spec == weight.spec
    assert again.scale_dtype == weight.scale_dtype
    if weight.zero_points_OG is None:
        assert again.zero_points_OG is None
    else:
        assert np.array_equal(again.zero_points_OG, weight.zero_points_OG)


@pytest.mark.parametrize("suffix", written_form(SPECS["int4-g32-asym"]).suffixes)
def test_missing_and_misshapen_tensors_are_named(suffix: str) -> None:
    spec = SPECS["int4-g32-asym"]
    tensors = encode(quantize(random_values(3), spec, "bf16"))
    with pytest.raises(CheckpointError, match=suffix):
        decode({name: tensor for name, tensor in tensors.items() if name != suffix}, spec)
    cut = StoredTensor(dtype=tensors[suffix].dtype, array=tensors[suffix].array[:-1])
    with pytest.raises(CheckpointError, match=suffix):
        decode({**tensors, suffix: cut}, spec)
    other = StoredTensor(dtype="U8", array=tensors[suffix].array.astype(np.uint8))
    with pytest.raises(CheckpointError, match=suffix):
        decode({**tensors, suffix: other}, spec)


def test_a_group_size_that_does_not_fit_is_a_damaged_checkpoint() -> None:
    tensors = encode(quantize(random_values(3), SPECS["int4-g32"], "bf16"))
    with pytest.raises(CheckpointError, match="96"):
        decode(tensors, WeightSpec(dtype="int4", group_size=96))


def test_scales_that_are_not_finite_are_refused() -> None:
    tensors = encode(quantize(random_values(3), SPECS["int4-g32"], "fp32"))
    tensors["weight_scale"].array[2, 1] = np.nan
    with pytest.raises(CheckpointError, match="weight_scale"):
        decode(tensors, SPECS["int4-g32"])


def test_fp8_codes_that_are_no_numbers_are_refused() -> None:
    for code in (0x7F, 0xFF):
        tensors = encode(quantize(random_values(4), SPECS["fp8"], "bf16"))
        tensors["weight"].array[3, 5] = code
        with pytest.raises(CheckpointError, match="NaN"):
            decode(tensors, SPECS["fp8"])


def test_a_static_input_scale_comes_along() -> None:
    spec = WeightSpec(dtype="int8", activations="int8_static")
    weight = replace(quantize(random_values(5), spec, "bf16"), input_scale=0.25)
    tensors = encode(weight)
    assert set(tensors) == set(written_form(spec).suffixes)
    again = decode(tensors, spec)
    assert again.input_scale == 0.25
    assert np.array_equal(again.values_OI, weight.values_OI)
    for bad in (0.0, -1.0, np.inf, np.nan):
        scale = StoredTensor(dtype="F32", array=np.array([bad], np.float32))
        with pytest.raises(CheckpointError, match="input_scale"):
            decode({**tensors, "input_scale": scale}, spec)


def test_codes_of_few_bits_in_whole_bytes_stay_in_their_range() -> None:
    spec = WeightSpec(dtype="int4", group_size=128, activations="int8_row")
    weight = quantize(random_values(6), spec, "bf16")
    tensors = encode(weight)
    assert np.array_equal(decode(tensors, spec).values_OI, weight.values_OI)
    tensors["weight"].array[0, 0] = 8
    with pytest.raises(CheckpointError, match="4 bits"):
        decode(tensors, spec)
