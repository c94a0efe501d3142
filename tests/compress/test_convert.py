"""From one quantized format to another and back: the same bytes; to floats: the dequantized
values; keys and values as they were kept."""

import json
import re
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AwqConfig,
    BitsAndBytesConfig,
    GPTQConfig,
)
from transformers.quantizers.quantizers_utils import should_convert_module

from fakes.quantized_folders import (
    MODULE,
    WIDE,
    encode_gptq,
    file_bytes,
    gptq_section,
    reorder,
    write_awq,
    write_folder,
    write_gptq,
)
from fakes.tiny_models import VOCAB_SIZE, make_model
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.compress import compress
from paredown.compress.convert.convert import convert
from paredown.formats.floating import cast
from paredown.formats.stored.column_order import NOTE
from paredown.formats.stored.kv_scheme import KV_SCHEMES
from paredown.models.checkpoint import Checkpoint
from paredown.spec.kv import KVFormat
from paredown.spec.weight import WeightSpec

INT4 = WeightSpec(dtype="int4", group_size=32)
SPECS = [
    WeightSpec(dtype="int2", group_size=64),
    WeightSpec(dtype="int3", group_size=32, symmetric=False),
    INT4,
    WeightSpec(dtype="int4", group_size=128, symmetric=False),
    WeightSpec(dtype="int4"),
    WeightSpec(dtype="int8", group_size=32),
    WeightSpec(dtype="int8", symmetric=False),
]

# What the libraries themselves say when a compressed checkpoint is loaded.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers"),
    pytest.mark.filterwarnings("ignore::UserWarning:compressed_tensors"),
]


def round_trip(folder: Path, through: str, back: str) -> None:
    convert(Checkpoint.open(folder / "in"), folder / "middle", through)
    convert(Checkpoint.open(folder / "middle"), folder / "out", back)
    assert file_bytes(folder / "middle").keys() != file_bytes(folder / "in").keys()
    assert file_bytes(folder / "out") == file_bytes(folder / "in")


@pytest.mark.parametrize(("version", "target"), [(1, "gptq"), (2, "gptq-v2")])
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_gptq_to_compressed_tensors_and_back_is_bit_identical(
    spec: WeightSpec, version: int, target: str, tmp_path: Path
) -> None:
    write_gptq(tmp_path / "in", spec, version)
    round_trip(tmp_path, "compressed-tensors", target)


@pytest.mark.parametrize("group_size", [None, 32, 128])
def test_awq_to_compressed_tensors_and_back_is_bit_identical(group_size, tmp_path: Path) -> None:
    write_awq(tmp_path / "in", group_size)
    round_trip(tmp_path, "compressed-tensors", "awq")


@pytest.mark.parametrize("through", ["gptq", "gptq-v2"])
def test_awq_to_gptq_and_back_is_bit_identical(through: str, tmp_path: Path) -> None:
    write_awq(tmp_path / "in")
    if through == "gptq":
        zeros = Checkpoint.open(tmp_path / "in").linear("down", 1).zero_points_OG
        assert zeros is not None
        assert zeros.all()
    round_trip(tmp_path, through, "awq")


@pytest.mark.parametrize("target", ["gptq", "gptq-v2", "awq"])
def test_what_we_compressed_in_bf16_keeps_its_numbers(target: str, tmp_path: Path) -> None:
    make_model("llama", torch.bfloat16, 0, **WIDE).save_pretrained(tmp_path / "float")
    compress(Checkpoint.open(tmp_path / "float"), tmp_path / "in", "int4-g64")
    source = Checkpoint.open(tmp_path / "in")
    result = convert(source, tmp_path / "out", target)
    written = Checkpoint.open(tmp_path / "out")
    assert result.notes == ()
    assert result.file_bytes == written.file_bytes
    for layer in range(2):
        for role in source.spec.linear_shapes(0):
            ours, theirs = written.linear(role, layer), source.linear(role, layer)
            assert np.array_equal(ours.values_OI, theirs.values_OI)
            assert np.array_equal(ours.scales_OG, theirs.scales_OG)
            assert ours.scale_dtype == "fp16"
    kept = {name for name in source.tensors if name in written.tensors}
    for name in kept:
        assert np.array_equal(source.tensors[name].array, written.tensors[name].array)


def spec_by_module(module: str) -> WeightSpec | None:
    if module.endswith("layers.0.mlp.down_proj"):
        return None
    return WeightSpec(dtype="int8", group_size=64) if ".1.mlp." in module else INT4


def write_mixed(folder: Path) -> None:
    dynamic = {
        r"-:.*layers\.0\.mlp\.down_proj": {},
        r"+:.*layers\.1\.mlp.*": {"bits": 8, "group_size": 64},
    }
    section = gptq_section(INT4, dynamic=dynamic)
    write_folder(folder, section, spec_by_module, lambda module, weight: encode_gptq(weight, 1))


def test_a_mixture_survives_the_round_trip(tmp_path: Path) -> None:
    write_mixed(tmp_path / "in")
    round_trip(tmp_path, "compressed-tensors", "gptq")
    section = json.loads((tmp_path / "middle" / "config.json").read_text())["quantization_config"]
    groups = section["config_groups"]
    assert len(groups) == 2
    assert groups["group_0"]["targets"] == ["Linear"]
    mlp = [f"model.layers.1.mlp.{name}_proj" for name in ("gate", "up", "down")]
    assert sorted(groups["group_1"]["targets"]) == sorted(mlp)
    assert sorted(section["ignore"]) == ["lm_head", "model.layers.0.mlp.down_proj"]


def test_transformers_loads_the_mixture_to_our_bits(tmp_path: Path) -> None:
    write_mixed(tmp_path / "in")
    convert(Checkpoint.open(tmp_path / "in"), tmp_path / "out", "compressed-tensors")
    ours = Checkpoint.open(tmp_path / "out")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto").eval()
    with torch.no_grad():
        model(torch.tensor([[1, 2, 3]]))
    for layer in range(2):
        for role in ours.spec.linear_shapes(0):
            module = ours.linear_name(role, layer)
            theirs = model.get_submodule(module).weight.detach().float().numpy()
            assert np.array_equal(theirs, ours.linear(role, layer).dequantize()), module


def test_gptqs_config_says_what_its_tools_look_for(tmp_path: Path) -> None:
    write_awq(tmp_path / "in", 128)
    convert(Checkpoint.open(tmp_path / "in"), tmp_path / "out", "gptq")
    section = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    assert section == json.loads((tmp_path / "out" / "quantize_config.json").read_text())
    assert section == {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": 128,
        "sym": False,
        "desc_act": False,
        "lm_head": False,
        "checkpoint_format": "gptq",
        "pack_dtype": "int32",
        "meta": {"quantizer": ["paredown"]},
    }
    theirs = GPTQConfig.from_dict(section)
    assert (theirs.bits, theirs.group_size, theirs.sym, theirs.format) == (4, 128, False, "gptq")


def test_awqs_config_says_what_its_tools_look_for(tmp_path: Path) -> None:
    write_gptq(tmp_path / "in", INT4)
    convert(Checkpoint.open(tmp_path / "in"), tmp_path / "out", "awq")
    section = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    assert section == {
        "quant_method": "awq",
        "bits": 4,
        "group_size": 32,
        "zero_point": True,
        "version": "gemm",
        "modules_to_not_convert": None,
    }
    theirs = AwqConfig.from_dict(section)
    assert (theirs.bits, theirs.group_size, theirs.zero_point, theirs.format) == (
        4,
        32,
        True,
        "gemm",
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("head", ["", "-head-int8"])
def test_llm_int8_becomes_what_bitsandbytes_reads(
    dtype: torch.dtype, head: str, tmp_path: Path
) -> None:
    make_model("llama", dtype, 0, **WIDE).save_pretrained(tmp_path / "float")
    compress(Checkpoint.open(tmp_path / "float"), tmp_path / "in", f"llm-int8{head}")
    source = Checkpoint.open(tmp_path / "in")
    convert(source, tmp_path / "out", "bitsandbytes")
    written = Checkpoint.open(tmp_path / "out")
    weights = [
        (both.output() if role is None else both.linear(role, layer))
        for layer in range(2)
        for role in (None, *source.spec.linear_shapes(0))
        for both in (source, written)
    ]
    for theirs, ours in zip(weights[::2], weights[1::2], strict=True):
        assert np.array_equal(ours.values_OI, theirs.values_OI)
        assert (ours.scales_OG is None) == (theirs.scales_OG is None)
        assert ours.scales_OG is None or np.array_equal(ours.scales_OG, theirs.scales_OG)
    theirs = AutoConfig.from_pretrained(tmp_path / "out").quantization_config
    library = BitsAndBytesConfig.from_dict(theirs)
    assert library.quantization_method() == "llm_int8"
    skipped = library.llm_int8_skip_modules
    codes = {name for name in source.weight_specs() if should_convert_module(name, skipped)}
    assert codes - {source.names.embedding} == set(written.forms)
    convert(written, tmp_path / "back", "compressed-tensors")
    back = Checkpoint.open(tmp_path / "back")
    assert np.array_equal(back.linear("down", 1).values_OI, source.linear("down", 1).values_OI)
    assert np.array_equal(back.linear("down", 1).scales_OG, source.linear("down", 1).scales_OG)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_floats_are_the_dequantized_weights(dtype: str, tmp_path: Path) -> None:
    write_gptq(tmp_path / "in", INT4, edit=reorder())
    source = Checkpoint.open(tmp_path / "in")
    result = convert(source, tmp_path / "out", dtype)
    written = Checkpoint.open(tmp_path / "out")
    assert "quantization_config" not in written.config
    assert result.notes == (f"{NOTE} (1 linear layer: {MODULE})",)
    assert result.clamped == {}
    for role in source.spec.linear_shapes(0):
        expected = cast(source.linear(role, 1).dequantize(), dtype).tensor
        stored = written.tensors[f"{written.linear_name(role, 1)}.weight"]
        assert (stored.dtype, stored.array.tobytes()) == (expected.dtype, expected.array.tobytes())
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    assert (
        model.dtype == {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[dtype]
    )


def test_what_fp16_clamps_is_told(tmp_path: Path) -> None:
    model = make_model("llama", torch.bfloat16, 3)
    with torch.no_grad():
        model.model.norm.weight[:3] = 1e6
    model.save_pretrained(tmp_path / "in")
    result = convert(Checkpoint.open(tmp_path / "in"), tmp_path / "out", "fp16")
    assert result.clamped == {"model.norm.weight": 3}


def write_with_kv(folder: Path, form: str) -> Checkpoint:
    make_model("llama", torch.bfloat16, 0).save_pretrained(folder / "in")
    windows_NT = np.random.default_rng(5).integers(0, VOCAB_SIZE, (4, 24))
    compress(
        Checkpoint.open(folder / "in"),
        folder / "small",
        f"int4-g32{form}",
        calibration=Calibration(windows_NT=windows_NT, source="random tokens"),
    )
    return Checkpoint.open(folder / "small")


@pytest.mark.parametrize("form", get_args(KVFormat))
def test_how_keys_and_values_are_kept_is_kept(tmp_path: Path, form: str) -> None:
    source = write_with_kv(tmp_path, f"-kv-{form}")
    result = convert(source, tmp_path / "out", "compressed-tensors")
    assert file_bytes(tmp_path / "out") == file_bytes(tmp_path / "small")
    written = Checkpoint.open(tmp_path / "out")
    section = written.config["quantization_config"]
    assert section["kv_cache_scheme"] == source.kv.section == KV_SCHEMES[form]
    assert written.kv_dtype == source.kv_dtype
    assert len(written.kv_scales) == (4 if form.endswith("-static") else 0)
    assert result.notes == source.notes


@pytest.mark.parametrize("target", ["gptq", "bf16", "fp32"])
@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("-kv-int8", "kv_cache_scheme: they are not written; .*--kv-dtype int8"),
        ("-kv-int8-static", "kv_cache_scheme and its 4 stored scales: .*--kv-dtype int8\\)$"),
        ("-kv-fp8-static", "kv_cache_scheme and its 4 stored scales: .*--kv-dtype fp8\\)$"),
        ("", None),
    ],
)
def test_a_kv_cache_that_is_not_written_is_told(
    tmp_path: Path, target: str, form: str, words: str | None
) -> None:
    source = write_with_kv(tmp_path, form)
    *others, last = ("", *convert(source, tmp_path / "out", target).notes)
    if words is None:
        assert not last
    else:
        assert last.startswith(target)
        assert re.search(words, last)
        assert others == ["", *source.notes]
    assert Checkpoint.open(tmp_path / "out").kv.section is None
