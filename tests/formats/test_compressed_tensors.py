"""The stored form against the compressed-tensors library, both ways, bit for bit."""

import copy

import numpy as np
import pytest
import torch
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationConfig
from compressed_tensors.quantization.utils.helpers import calculate_qparams
from compressed_tensors.utils.match import match_targets

from paredown.errors import CheckpointError, ParedownError, UnsupportedError
from paredown.formats.compressed_tensors import (
    decode,
    encode,
    parse_quantization_config,
    quantization_config,
    tensor_suffixes,
)
from paredown.formats.dequantize import dequantize
from paredown.formats.integer import quantize
from paredown.formats.table import FORMATS
from paredown.formats.tensor import StoredTensor
from paredown.spec.weight import WeightSpec

SPECS = {name: row.spec for name, row in FORMATS.items() if row.spec.is_integer}
TORCH_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# Rows that are no multiple of a word's 8 or 4 codes, so that packed zero points end in padding.
SHAPE = (37, 256)


def random_values(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)


def scheme_of(spec: WeightSpec):
    config = QuantizationConfig.model_validate(quantization_config(spec, ["lm_head"]))
    return config.config_groups["group_0"]


def to_torch(stored: StoredTensor) -> torch.Tensor:
    tensor = torch.from_numpy(stored.array.copy())
    return tensor.view(torch.bfloat16) if stored.dtype == "BF16" else tensor


def from_torch(tensor: torch.Tensor) -> StoredTensor:
    if tensor.dtype == torch.bfloat16:
        return StoredTensor(dtype="BF16", array=tensor.view(torch.uint16).numpy())
    names = {torch.float32: "F32", torch.float16: "F16", torch.int32: "I32", torch.int64: "I64"}
    return StoredTensor(dtype=names[tensor.dtype], array=tensor.numpy())


@pytest.mark.parametrize("dtype", TORCH_DTYPES)
@pytest.mark.parametrize("name", SPECS)
def test_the_library_decompresses_what_we_wrote(name: str, dtype) -> None:
    weight = quantize(random_values(0), SPECS[name], dtype)
    stored = encode(weight)
    assert set(stored) == set(tensor_suffixes(SPECS[name]))
    scheme = scheme_of(SPECS[name])
    assert set(stored) == set(PackedQuantizationCompressor.compression_param_names(scheme))
    state = {suffix: to_torch(tensor) for suffix, tensor in stored.items()}
    theirs = PackedQuantizationCompressor.decompress(state, scheme)["weight"]
    assert theirs.dtype == TORCH_DTYPES[dtype]
    assert np.array_equal(theirs.float().numpy(), dequantize(weight))


@pytest.mark.parametrize("dtype", TORCH_DTYPES)
@pytest.mark.parametrize("name", SPECS)
def test_we_read_what_the_library_compressed(name: str, dtype) -> None:
    spec, scheme = SPECS[name], scheme_of(SPECS[name])
    values = torch.from_numpy(random_values(1)).to(TORCH_DTYPES[dtype])
    groups = values.unflatten(1, (-1, spec.group_size or SHAPE[1]))
    scale, zero = calculate_qparams(groups.amin(2), groups.amax(2), scheme.weights)
    state = {"weight": values, "weight_scale": scale, "weight_zero_point": zero}
    packed = PackedQuantizationCompressor.compress(state, scheme)
    weight = decode({suffix: from_torch(tensor) for suffix, tensor in packed.items()}, spec)
    theirs = PackedQuantizationCompressor.decompress(packed, scheme)["weight"]
    assert weight.scale_dtype == dtype
    assert np.array_equal(theirs.float().numpy(), dequantize(weight))


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


@pytest.mark.parametrize("suffix", tensor_suffixes(SPECS["int4-g32-asym"]))
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


@pytest.mark.parametrize("name", SPECS)
def test_our_config_reads_back(name: str) -> None:
    config = parse_quantization_config(quantization_config(SPECS[name], ["lm_head"]))
    assert config.spec_for("model.layers.0.mlp.up_proj") == SPECS[name]
    assert config.spec_for("lm_head") is None


@pytest.mark.parametrize("name", SPECS)
def test_the_librarys_own_config_reads(name: str) -> None:
    ours = quantization_config(SPECS[name], ["lm_head"])
    theirs = QuantizationConfig.model_validate(ours).to_dict()
    assert parse_quantization_config(theirs).spec_for("x.q_proj") == SPECS[name]


def config_with(targets: dict[str, list[str]], ignore: list[str]) -> dict:
    """Each group has its own group size."""
    config = quantization_config(SPECS["int4-g32"], ignore)
    group = config["config_groups"]["group_0"]
    config["config_groups"] = {}
    for size, (name, patterns) in zip((32, 64, 128), targets.items(), strict=False):
        one = copy.deepcopy(group)
        one["targets"], one["weights"]["group_size"] = patterns, size
        config["config_groups"][name] = one
    return config


MODULES = [f"model.layers.{i}.mlp.{name}" for i in (0, 1, 10, 11) for name in ("up", "down")]


@pytest.mark.parametrize(
    ("targets", "ignore"),
    [
        ({"a": ["Linear"]}, ["lm_head"]),
        ({"a": ["Linear"]}, ["re:.*layers.1.*"]),
        ({"a": ["Linear"]}, [r"re:model\.layers\.1\..*"]),
        ({"a": ["re:layers"]}, []),
        ({"a": ["Linear"], "b": [r"re:.*\.down"], "c": ["model.layers.10.mlp.down"]}, []),
        ({"a": ["re:model.*up"], "b": ["re:.*layers.0.*"]}, ["model.layers.11.mlp.up"]),
        ({"a": ["Conv2d"], "b": ["Linear"]}, ["Linear"]),
    ],
)
def test_targets_match_as_in_the_library(targets, ignore) -> None:
    config = config_with(targets, ignore)
    parsed = parse_quantization_config(config)
    linear = torch.nn.Linear(1, 1)
    patterns = [pattern for group in targets.values() for pattern in group]
    for name in MODULES:
        matched = match_targets(name, linear, patterns)
        spec = parsed.spec_for(name)
        if not matched or match_targets(name, linear, ignore):
            assert spec is None
            continue
        owner = next(group for group, own in targets.items() if matched[0] in own)
        assert spec is not None
        assert spec.group_size == config["config_groups"][owner]["weights"]["group_size"]


def test_presets_are_the_librarys() -> None:
    for name in ("W4A16", "W4A16_ASYM", "W8A16"):
        config = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
        config["config_groups"] = {name: ["Linear"]}
        ours = parse_quantization_config(config).spec_for("x")
        weights = QuantizationConfig.model_validate(config).config_groups[name].weights
        assert ours is not None
        assert (ours.bits, ours.group_size) == (weights.num_bits, weights.group_size)
        assert ours.symmetric == weights.symmetric


ACTIVATIONS = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        ("weights.type", "float", "float of 4 bits"),
        ("weights.num_bits", 3, "num_bits"),
        ("weights.num_bits", [4], "num_bits"),
        ("weights.strategy", "tensor", "tensor"),
        ("weights.strategy", "block", "block"),
        ("weights.group_size", 0, "group_size"),
        ("weights.group_size", "32", "group_size"),
        ("weights.symmetric", "no", "symmetric"),
        ("weights.dynamic", True, "dynamic"),
        ("weights.actorder", "group", "actorder"),
        ("weights.block_structure", [128, 128], "block_structure"),
        ("group.input_activations", ACTIVATIONS, "input_activations"),
        ("group.output_activations", ACTIVATIONS, "output_activations"),
        ("group.format", "int-quantized", "int-quantized"),
        ("group.targets", ["re:("], "targets"),
        ("group.targets", "Linear", "targets"),
        ("config.kv_cache_scheme", ACTIVATIONS, "kv_cache_scheme"),
        ("config.sparsity_config", {"format": "sparse-bitmask"}, "sparse-bitmask"),
        ("config.transform_config", {"config_groups": {"u": {}}}, "transform_config"),
        ("config.quant_method", "gptq", "gptq"),
        ("config.quantization_status", "frozen", "frozen"),
        ("config.config_groups", {}, "config_groups"),
        ("config.config_groups", {"FP8": ["Linear"]}, "FP8"),
        ("config.config_groups", {"g": 3}, "config_groups.g"),
        ("config.ignore", [3], "ignore"),
        ("config.something_new", "on", "something_new"),
    ],
)
def test_what_we_do_not_know_is_refused_by_name(place: str, value, named: str) -> None:
    config = copy.deepcopy(quantization_config(SPECS["int4-g32"], ["lm_head"]))
    group = config["config_groups"]["group_0"]
    where, field = place.split(".")
    {"config": config, "group": group, "weights": group["weights"]}[where][field] = value
    with pytest.raises((UnsupportedError, CheckpointError)) as caught:
        parse_quantization_config(config)
    assert isinstance(caught.value, ParedownError)
    assert named in str(caught.value)
