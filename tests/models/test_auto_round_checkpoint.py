"""What AutoRound and newer GPTQModel write: fields that tell the history of a folder, and a section
of config.json that is of AutoRound alone."""

from pathlib import Path

import numpy as np
import pytest

from fakes.quantized_folders import (
    MODULE,
    awq_section,
    edit_config,
    encode_awq,
    encode_gptq,
    gptq_section,
    write_awq,
    write_folder,
    write_gptq,
)
from paredown.errors import CheckpointError, UnsupportedError
from paredown.models.checkpoint import Checkpoint
from paredown.spec.weight import WeightSpec
from references.packing import awq_values, gptq_values

INT4 = WeightSpec(dtype="int4", group_size=32)


def stored(checkpoint: Checkpoint, *suffixes: str) -> dict[str, np.ndarray]:
    return {suffix: checkpoint.tensors[f"{MODULE}.{suffix}"].array for suffix in suffixes}


# How AutoRound and GPTQModel say that they made a file, each beside what any of them writes.
HISTORIES = [
    {"data_type": "int", "iters": 200},
    {"autoround_version": "0.4.5"},
    {"offload_to_disk": True},
    {"fallback": {"strategy": "rtn"}},
    {"act_bits": 16, "act_group_size": -1, "provider": "auto-round", "nsamples": 512},
]


@pytest.mark.parametrize("more", HISTORIES)
def test_how_a_file_was_made_changes_nothing(more: dict, tmp_path: Path) -> None:
    write_gptq(tmp_path / "gptq", INT4, section=gptq_section(INT4, **more))
    write_awq(tmp_path / "awq", section=awq_section(**more))
    for name, spec in (("gptq", INT4), ("awq", WeightSpec(**vars(INT4) | {"symmetric": False}))):
        checkpoint = Checkpoint.open(tmp_path / name)
        assert checkpoint.linear("down", 1).spec == spec
        assert checkpoint.notes == ()


def test_fields_that_nobody_knows_are_passed_over_and_noted(tmp_path: Path) -> None:
    dynamic = {r"+:.*up_proj": {"bits": 4, "tuned": 3}}
    section = gptq_section(INT4, dynamic=dynamic, shiny=True, dull=None, empty=[])
    write_gptq(tmp_path / "gptq", INT4, section=section)
    checkpoint = Checkpoint.open(tmp_path / "gptq")
    (note,) = checkpoint.notes
    assert note.endswith("passed over: shiny, dynamic.+:.*up_proj.tuned")
    assert checkpoint.linear("down", 1).spec == INT4
    write_awq(tmp_path / "awq", section=awq_section(clip=True))
    (note,) = Checkpoint.open(tmp_path / "awq").notes
    assert note.endswith("passed over: clip")


def test_awq_without_zero_points_has_them_in_the_middle(tmp_path: Path) -> None:
    spec = WeightSpec(dtype="int4", group_size=32)
    write_folder(
        tmp_path,
        awq_section(zero_point=False, sym=True, provider="auto-round"),
        lambda module: spec,
        lambda module, weight: encode_awq(weight),
    )
    checkpoint = Checkpoint.open(tmp_path)
    weight = checkpoint.linear("down", 1)
    assert weight.spec == spec
    tensors = stored(checkpoint, "qweight", "qzeros", "scales")
    values = awq_values(tensors, 32).astype(np.float16)
    assert np.array_equal(weight.dequantize(), values.astype(np.float32))


def auto_round(packing: str, **others: object) -> dict[str, object]:
    return {
        "quant_method": "auto-round",
        "packing_format": packing,
        "bits": 4,
        "group_size": 32,
        "sym": True,
        "data_type": "int",
        "autoround_version": "0.8.0",
        "block_name_to_quantize": "model.layers",
        "iters": 200,
        **others,
    }


@pytest.mark.parametrize(
    ("packing", "version"),
    [
        ("auto_round:auto_gptq", 1),
        ("auto_round:gptq", 1),
        ("auto_round:auto_gptq:exllamav2", 1),
        ("auto_round", 2),
        ("auto_round:gptqmodel", 2),
    ],
)
@pytest.mark.parametrize("symmetric", [True, False])
def test_auto_round_in_gptqs_packing(
    packing: str, version: int, symmetric: bool, tmp_path: Path
) -> None:
    """Zero points are stored minus 1 under one name and as they are under the other
    (auto_round/inference/backend.py, GPTQ_FORMAT and GPTQ_FORMAT_NO_ZP)."""
    spec = WeightSpec(dtype="int4", group_size=32, symmetric=symmetric)
    write_gptq(tmp_path, spec, version, section=auto_round(packing, sym=symmetric))
    checkpoint = Checkpoint.open(tmp_path)
    assert checkpoint.notes == ()
    assert checkpoint.linear("down", 1).spec == spec
    tensors = stored(checkpoint, "qweight", "qzeros", "scales", "g_idx")
    values = gptq_values(tensors, 4, version).astype(np.float16)
    assert np.array_equal(checkpoint.linear("down", 1).dequantize(), values.astype(np.float32))


def test_auto_round_in_awqs_packing(tmp_path: Path) -> None:
    write_awq(tmp_path, section=auto_round("auto_round:auto_awq", sym=False))
    weight = Checkpoint.open(tmp_path).linear("down", 1)
    assert weight.spec == WeightSpec(dtype="int4", group_size=32, symmetric=False)
    edit_config(tmp_path, quantization_config=auto_round("auto_round:auto_awq"))
    with pytest.raises(CheckpointError, match=r"qzeros .*not 8 throughout"):
        Checkpoint.open(tmp_path)


def test_auto_rounds_modules_of_their_own(tmp_path: Path) -> None:
    extra = {
        "model.layers.0.mlp.up_proj": {"bits": 8, "group_size": 64},
        r".*\.0\..*": {"bits": 16, "act_bits": 16, "data_type": "float"},
        r".*mlp.*": {"bits": 8, "group_size": 64, "act_bits": 16},
        r".*o_proj": {"sym": False},
    }

    def by_name(module: str) -> WeightSpec | None:
        if module == "model.layers.0.mlp.up_proj":
            return WeightSpec(dtype="int8", group_size=64)
        if ".0." in module:
            return None
        if ".mlp." in module:
            return WeightSpec(dtype="int8", group_size=64)
        return WeightSpec(dtype="int4", group_size=32, symmetric="o_proj" not in module)

    section = auto_round("auto_round:auto_gptq", extra_config=extra)
    write_folder(tmp_path, section, by_name, lambda module, weight: encode_gptq(weight, 1))
    specs = Checkpoint.open(tmp_path).weight_specs()
    del specs["model.embed_tokens"], specs["lm_head"]
    for module, spec in specs.items():
        assert spec == (by_name(module) or WeightSpec(dtype="fp16"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"packing_format": "auto_round:llm_compressor"}, "packing_format"),
        ({"packing_format": 3}, "packing_format"),
        ({"packing_format": "auto_round:auto_awq", "bits": 8}, "bits"),
        ({"data_type": "nv_fp"}, "data_type"),
        ({"act_bits": 4}, "act_bits"),
        ({"rotation_config": {"block_size": 32}}, "rotation_config"),
        ({"extra_config": [3]}, "extra_config"),
        ({"extra_config": {"x": 3}}, "extra_config.x"),
        ({"extra_config": {"(": {}}}, "extra_config"),
        ({"extra_config": {"x": {"bits": 8, "super_bits": 4}}}, "extra_config.x.super_bits"),
        ({"sym": "yes"}, "sym"),
    ],
)
def test_auto_round_sections_that_cannot_be_followed(changes, words: str, tmp_path: Path) -> None:
    write_gptq(tmp_path, INT4, section=auto_round("auto_round:auto_gptq", **changes))
    with pytest.raises((CheckpointError, UnsupportedError), match=words):
        Checkpoint.open(tmp_path)
