"""compressed-tensors' section of config.json, against the library's own reading of it."""

import copy

import pytest
import torch
from compressed_tensors.compressors.format import infer_module_format
from compressed_tensors.quantization import QuantizationConfig
from compressed_tensors.utils.match import match_targets

from paredown.errors import CheckpointError, ParedownError, UnsupportedError
from paredown.formats.stored.compressed_tensors.read_section import (
    CompressedTensorsConfig,
    read_compressed_tensors,
)
from paredown.formats.stored.compressed_tensors.write_section import quantization_config
from paredown.formats.table import FORMATS
from paredown.spec.weight import WeightSpec

STATIC = WeightSpec(dtype="int8", activations="int8_static")
SPECS = {name: spec for name, spec in FORMATS.items() if spec.is_quantized}
SPECS["w8a8-static"] = STATIC


def read(section: dict) -> CompressedTensorsConfig:
    return read_compressed_tensors(section, [])


def spec_of(config: CompressedTensorsConfig, module: str) -> WeightSpec | None:
    form = config.form_for(module)
    return None if form is None else form.spec


@pytest.mark.parametrize("name", SPECS)
def test_our_config_reads_back(name: str) -> None:
    config = read(quantization_config(SPECS[name], ["lm_head"]))
    assert spec_of(config, "model.layers.0.mlp.up_proj") == SPECS[name]
    assert spec_of(config, "lm_head") is None


@pytest.mark.parametrize("name", SPECS)
def test_the_librarys_own_config_reads(name: str) -> None:
    ours = quantization_config(SPECS[name], ["lm_head"])
    theirs = QuantizationConfig.model_validate(ours).to_dict()
    assert spec_of(read(theirs), "x.q_proj") == SPECS[name]


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
    parsed = read(config)
    linear = torch.nn.Linear(1, 1)
    patterns = [pattern for group in targets.values() for pattern in group]
    for name in MODULES:
        matched = match_targets(name, linear, patterns)
        spec = spec_of(parsed, name)
        if not matched or match_targets(name, linear, ignore):
            assert spec is None
            continue
        owner = next(group for group, own in targets.items() if matched[0] in own)
        assert spec is not None
        assert spec.group_size == config["config_groups"][owner]["weights"]["group_size"]


PRESETS = {
    "W2A16": "int2-g128",
    "W3A16": "int3-g128",
    "W4A16": "int4-g128",
    "W4A16_ASYM": "int4-g128-asym",
    "W5A16": "int5-g128",
    "W6A16": "int6-g128",
    "W8A16": "int8-g128",
    "W8A8": "w8a8",
    "INT8": "w8a8",
    "W4A8": "w4a8-g128",
    "FP8_DYNAMIC": "fp8",
}


@pytest.mark.parametrize(("preset", "name"), PRESETS.items())
def test_presets_are_the_librarys(preset: str, name: str) -> None:
    config = {"quant_method": "compressed-tensors", "config_groups": {preset: ["Linear"]}}
    theirs = QuantizationConfig.model_validate(config).config_groups[preset]
    config["format"] = infer_module_format(torch.nn.Linear, theirs).value
    ours = spec_of(read(config), "x")
    assert ours is not None
    assert ours.name == name
    assert (ours.bits, ours.group_size) == (theirs.weights.num_bits, theirs.weights.group_size)
    assert ours.symmetric == theirs.weights.symmetric
    # Spelled out, the same preset reads the same.
    config["quantization_status"] = "compressed"
    spelled = QuantizationConfig.model_validate(config).to_dict()
    assert spec_of(read(spelled), "x") == ours


def test_a_module_may_have_a_format_of_its_own() -> None:
    named = {"lm_head": SPECS["w8a8"]}
    section = quantization_config(SPECS["int4-g32"], [], named)
    assert section["format"] == "mixed-precision"
    theirs = QuantizationConfig.model_validate(section).to_dict()
    for config in (section, theirs):
        parsed = read(config)
        assert spec_of(parsed, "model.layers.0.mlp.up_proj") == SPECS["int4-g32"]
        assert spec_of(parsed, "lm_head") == SPECS["w8a8"]
    alone = read(quantization_config(None, [], named))
    assert spec_of(alone, "model.layers.0.mlp.up_proj") is None
    assert spec_of(alone, "lm_head") == SPECS["w8a8"]


def test_inputs_without_weights_are_refused() -> None:
    config = copy.deepcopy(quantization_config(SPECS["w8a8"], []))
    config["config_groups"]["group_0"]["weights"] = None
    with pytest.raises(UnsupportedError, match="input_activations"):
        read(config)


ACTIVATIONS = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        ("weights.type", "float", "float of 4 bits"),
        ("weights.num_bits", 9, "num_bits"),
        ("weights.num_bits", True, "num_bits"),
        ("weights.num_bits", [4], "num_bits"),
        ("weights.strategy", "tensor_group", "tensor_group"),
        ("weights.strategy", "block", "block_structure"),
        ("weights.group_size", 0, "group_size"),
        ("weights.group_size", "32", "group_size"),
        ("weights.symmetric", "no", "symmetric"),
        ("weights.dynamic", True, "dynamic"),
        ("weights.actorder", "random", "actorder"),
        ("weights.block_structure", [128, 128], "block_structure"),
        ("group.input_activations", ACTIVATIONS | {"num_bits": 4}, "input_activations"),
        ("group.input_activations", ACTIVATIONS | {"dynamic": "local"}, "input_activations"),
        ("group.input_activations", ACTIVATIONS | {"strategy": "group"}, "input_activations"),
        ("group.input_activations", ACTIVATIONS | {"symmetric": False}, "input_activations"),
        ("group.input_activations", ACTIVATIONS | {"dynamic": False}, "input_activations"),
        ("group.input_activations", ACTIVATIONS | {"actorder": "weight"}, "actorder"),
        ("group.input_activations", "int8", "input_activations"),
        ("group.output_activations", ACTIVATIONS, "output_activations"),
        ("group.format", "float-quantized", "float-quantized"),
        ("group.format", "marlin-24", "marlin-24"),
        ("group.format", None, "format"),
        ("group.targets", ["re:("], "targets"),
        ("group.targets", "Linear", "targets"),
        ("config.kv_cache_scheme", ACTIVATIONS | {"num_bits": 3}, "kv_cache_scheme"),
        ("config.kv_cache_scheme", ACTIVATIONS | {"symmetric": False}, "kv_cache_scheme"),
        ("config.kv_cache_scheme", ACTIVATIONS | {"strategy": "channel"}, "kv_cache_scheme"),
        ("config.kv_cache_scheme", ACTIVATIONS | {"dynamic": False}, "kv_cache_scheme"),
        ("config.kv_cache_scheme", ACTIVATIONS | {"rotated": True}, "rotated"),
        ("config.kv_cache_scheme", "int8", "kv_cache_scheme"),
        ("config.sparsity_config", {"format": "sparse-bitmask"}, "sparse-bitmask"),
        ("config.transform_config", {"config_groups": {"u": {}}}, "transform_config"),
        ("config.config_groups", {}, "config_groups"),
        ("config.config_groups", {"NVFP4": ["Linear"]}, "NVFP4"),
        ("config.config_groups", {"g": 3}, "config_groups.g"),
        ("config.ignore", [3], "ignore"),
    ],
)
def test_what_we_do_not_know_is_refused_by_name(place: str, value, named: str) -> None:
    config = copy.deepcopy(quantization_config(SPECS["int4-g32"], ["lm_head"]))
    group = config["config_groups"]["group_0"]
    where, field = place.split(".")
    {"config": config, "group": group, "weights": group["weights"]}[where][field] = value
    if place == "group.format":
        del config["format"]
    with pytest.raises((UnsupportedError, CheckpointError)) as caught:
        read(config)
    assert isinstance(caught.value, ParedownError)
    assert named in str(caught.value)


@pytest.mark.parametrize("status", ["frozen", "initialized", "compressed", None])
def test_the_status_says_nothing_of_the_tensors(status: str | None) -> None:
    section = quantization_config(SPECS["int4-g32"], []) | {"quantization_status": status}
    config = read(section)
    assert spec_of(config, "x") == SPECS["int4-g32"]
    assert config.notes == ()


def test_unknown_fields_are_noted() -> None:
    section = quantization_config(SPECS["int4-g32"], []) | {"something_new": "on"}
    section["config_groups"]["group_0"]["told"] = 3
    config = read(section)
    assert spec_of(config, "x") == SPECS["int4-g32"]
    (note,) = config.notes
    assert note.endswith("passed over: something_new, config_groups.group_0.told")


def test_packed_weights_that_are_floats_are_refused() -> None:
    section = quantization_config(SPECS["int4-g32"], []) | {"quantization_status": "frozen"}
    config = read_compressed_tensors(section, ["x.weight", "x.weight_scale"])
    with pytest.raises(UnsupportedError, match=r"x\.weight holds floats beside scales"):
        config.form_for("x")
