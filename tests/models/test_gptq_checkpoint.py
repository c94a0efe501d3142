"""Checkpoints in GPTQ and AWQ form: their weights by role, on the native core, and what can be
wrong with them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.quantized_folders import (
    MODULE,
    Tensors,
    awq_section,
    edit_config,
    encode_gptq,
    gptq_section,
    reorder,
    write_awq,
    write_folder,
    write_gptq,
)
from fakes.tiny_models import VOCAB_SIZE
from paredown.errors import CheckpointError, UnsupportedError
from paredown.executors.load import load_executor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.formats.stored.column_order import NOTE
from paredown.formats.tensor import StoredTensor
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.read import read_state
from paredown.models.files.safetensors_file import read_safetensors, write_safetensors
from paredown.spec.weight import WeightSpec
from references.packing import awq_values, gptq_values

INT4 = WeightSpec(dtype="int4", group_size=32)
GPTQ_SPECS = [
    WeightSpec(dtype="int2", group_size=32),
    WeightSpec(dtype="int3", group_size=32),
    INT4,
    WeightSpec(dtype="int4"),
    WeightSpec(dtype="int8", group_size=128),
]


def stored(checkpoint: Checkpoint, module: str, *suffixes: str) -> dict[str, np.ndarray]:
    return {suffix: checkpoint.tensors[f"{module}.{suffix}"].array for suffix in suffixes}


def native_logits(checkpoint: Checkpoint, ids: list[int], **options: object) -> np.ndarray:
    executor = load_executor(
        checkpoint,
        RunOptions(num_pages=8, kv_dtype="fp32", threads=ThreadPlan.resolve(1), **options),
    )
    pages = list(range(executor.num_pages))
    return executor.step([SequenceSlice(token_ids=ids, start=0, pages=pages, num_logits=len(ids))])


def check_runs(checkpoint: Checkpoint) -> None:
    """The native core's logits are those of the dequantized checkpoint, within the tolerances of
    tests/executors/native/test_formats.py. It does not round products with scales to fp16."""
    torch.set_num_threads(1)
    ids = np.random.default_rng(1).integers(0, VOCAB_SIZE, 40).tolist()
    state = read_state(checkpoint)
    for layer in range(checkpoint.spec.num_layers):
        for role in checkpoint.spec.linear_shapes(0):
            weight = checkpoint.linear(role, layer)
            if weight.spec.is_quantized and weight.spec.has_kernel(weight.shape[1]):
                values = torch.from_numpy(weight.at_work())
                state[f"layers.{layer}.{role}.weight"] = values
    decoder = Decoder.from_checkpoint(checkpoint)
    decoder.load_state_dict(state)
    with torch.no_grad():
        expected = decoder(torch.tensor([ids]))[0].numpy()
    for bound, options in ((1e-4, {"activations": "fp32"}), (0.1, {})):
        logits = native_logits(checkpoint, ids, **options)
        distance = np.sqrt(np.mean((logits - expected) ** 2) / np.mean(expected**2))
        assert distance <= bound


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("spec", GPTQ_SPECS, ids=lambda spec: spec.name)
def test_gptq_by_role(spec: WeightSpec, version: int, tmp_path: Path) -> None:
    write_gptq(tmp_path, spec, version)
    checkpoint = Checkpoint.open(tmp_path)
    weight = checkpoint.linear("down", 1)
    assert weight.spec == spec == checkpoint.weight_specs()[MODULE]
    tensors = stored(checkpoint, MODULE, "qweight", "qzeros", "scales", "g_idx")
    values = gptq_values(tensors, spec.bits, version).astype(np.float16)
    assert np.array_equal(weight.dequantize(), values.astype(np.float32))
    assert checkpoint.output().spec == WeightSpec(dtype="fp16")
    assert checkpoint.notes == ()
    check_runs(checkpoint)


def test_the_method_named_twice_as_gptqmodel_does(tmp_path: Path) -> None:
    write_gptq(tmp_path, INT4, section=gptq_section(INT4, method="gptq", format="gptq"))
    assert Checkpoint.open(tmp_path).linear("down", 1).spec == INT4
    edit_config(tmp_path, quantization_config=gptq_section(INT4, method="qqq"))
    with pytest.raises(UnsupportedError, match=r"quantization_config\.method .*saw: qqq"):
        Checkpoint.open(tmp_path)


@pytest.mark.parametrize("group_size", [None, 32, 128])
def test_awq_by_role(group_size: int | None, tmp_path: Path) -> None:
    write_awq(tmp_path, group_size)
    checkpoint = Checkpoint.open(tmp_path)
    weight = checkpoint.linear("down", 1)
    assert weight.spec == WeightSpec(dtype="int4", group_size=group_size, symmetric=False)
    tensors = stored(checkpoint, MODULE, "qweight", "qzeros", "scales")
    values = awq_values(tensors, group_size or 256).astype(np.float16)
    assert np.array_equal(weight.dequantize(), values.astype(np.float32))
    check_runs(checkpoint)


def test_shards_as_transformers_leaves_them(tmp_path: Path) -> None:
    write_gptq(tmp_path / "one", INT4)
    write_gptq(tmp_path / "many", INT4, shard_bytes=50_000)
    assert len(list((tmp_path / "many").glob("model-*-of-*.safetensors"))) > 3
    one, many = Checkpoint.open(tmp_path / "one"), Checkpoint.open(tmp_path / "many")
    for role in one.spec.linear_shapes(0):
        assert np.array_equal(one.linear(role, 1).dequantize(), many.linear(role, 1).dequantize())


def test_columns_in_an_order_of_their_own_run_dequantized_and_say_so(tmp_path: Path) -> None:
    section = gptq_section(INT4, desc_act=True)
    write_gptq(tmp_path, INT4, edit=reorder(), section=section)
    checkpoint = Checkpoint.open(tmp_path)
    assert checkpoint.notes == (f"{NOTE} (1 linear layer: {MODULE})",)
    weight = checkpoint.linear("down", 1)
    assert weight.spec == checkpoint.weight_specs()[MODULE] == WeightSpec(dtype="fp16")
    tensors = stored(checkpoint, MODULE, "qweight", "qzeros", "scales", "g_idx")
    values = gptq_values(tensors, 4, 1).astype(np.float16)
    assert np.array_equal(weight.values_OI, values)
    assert checkpoint.linear("up", 1).spec == INT4
    check_runs(checkpoint)


def test_groups_without_a_kernel_run_dequantized_and_say_so(tmp_path: Path) -> None:
    spec = WeightSpec(dtype="int4", group_size=16)
    write_gptq(tmp_path, spec)
    checkpoint = Checkpoint.open(tmp_path)
    (note,) = checkpoint.notes
    assert note.startswith("groups of 16 columns have no kernel")
    assert "(14 linear layers: model.layers.0.self_attn.q_proj, ...)" in note
    assert checkpoint.linear("down", 1).spec == spec
    check_runs(checkpoint)


def test_an_order_may_be_left_out(tmp_path: Path) -> None:
    def drop(tensors: Tensors) -> None:
        for name in [name for name in tensors if name.endswith("g_idx")]:
            del tensors[name]

    write_gptq(tmp_path / "without", INT4, edit=drop)
    write_gptq(tmp_path / "with", INT4)
    ours = Checkpoint.open(tmp_path / "without").linear("down", 1)
    assert np.array_equal(
        ours.dequantize(), Checkpoint.open(tmp_path / "with").linear("down", 1).dequantize()
    )


def test_biases_of_zero_that_autogptq_adds_are_passed_over(tmp_path: Path) -> None:
    def add(value: float) -> None:
        path = tmp_path / "model.safetensors"
        bias = StoredTensor(dtype="F16", array=np.full(128, value, np.float16))
        tensors = dict(read_safetensors(path)) | {f"{MODULE}.bias": bias}
        write_safetensors(tmp_path / "new", tensors, {"format": "pt"})
        (tmp_path / "new").rename(path)

    write_gptq(tmp_path, INT4)
    add(0.0)
    assert f"{MODULE}.bias" not in Checkpoint.open(tmp_path).tensors
    add(0.5)
    with pytest.raises(CheckpointError, match=rf"{MODULE}.bias' is not part"):
        Checkpoint.open(tmp_path)


DYNAMIC = {
    r"-:^model\.layers\.0\..*": {},
    r"+:^model\.layers\.1\.mlp\..*": {"bits": 8, "group_size": 64},
    r"^model\.layers\.1\.self_attn\.o_proj$": {"sym": False},
}


def spec_by_rules(module: str) -> WeightSpec | None:
    if ".0." in module:
        return None
    if ".mlp." in module:
        return WeightSpec(dtype="int8", group_size=64)
    return WeightSpec(dtype="int4", group_size=32, symmetric="o_proj" not in module)


def test_modules_may_have_forms_of_their_own(tmp_path: Path) -> None:
    section = gptq_section(INT4, 2, dynamic=DYNAMIC)
    write_folder(tmp_path, section, spec_by_rules, lambda module, weight: encode_gptq(weight, 2))
    specs = Checkpoint.open(tmp_path).weight_specs()
    del specs["model.embed_tokens"], specs["lm_head"]
    for module, spec in specs.items():
        assert spec == (spec_by_rules(module) or WeightSpec(dtype="fp16"))


def test_autogptqs_own_file_is_read_where_the_config_says_nothing(tmp_path: Path) -> None:
    write_gptq(tmp_path, INT4)
    section = gptq_section(INT4)
    del section["quant_method"]
    edit_config(tmp_path, quantization_config=None)
    (tmp_path / "quantize_config.json").write_text(json.dumps(section))
    assert Checkpoint.open(tmp_path).linear("down", 1).spec == INT4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bits": 5}, "bits"),
        ({"bits": "4"}, "bits"),
        ({"group_size": 0}, "group_size"),
        ({"group_size": None}, "group_size"),
        ({"sym": "yes"}, "sym"),
        ({"desc_act": 1}, "desc_act"),
        ({"checkpoint_format": "gptq_p"}, "gptq_p"),
        ({"checkpoint_format": "marlin"}, "marlin"),
        ({"pack_dtype": "int64"}, "pack_dtype"),
        ({"rotation": "hadamard"}, "rotation"),
        ({"is_marlin_format": True}, "is_marlin_format"),
        ({"data_type": "mx_fp"}, "data_type"),
        ({"data_type": "int_asym_float_zp"}, "data_type"),
        ({"act_bits": 8}, "act_bits"),
        ({"super_bits": 6}, "super_bits"),
        ({"dynamic": ["x"]}, "dynamic"),
        ({"dynamic": {"+:(": {}}}, "dynamic"),
        ({"dynamic": {"x": 8}}, "dynamic.x"),
        ({"dynamic": {"x": {"adapter": "lora"}}}, "adapter"),
        ({"group_size": 128}, "wrong shape"),
        ({"bits": 8}, "wrong shape"),
        ({"dynamic": {r"-:.*down_proj": {}}}, r"down_proj.weight' is missing"),
        ({"quant_method": "exl2"}, "exl2"),
    ],
)
def test_gptq_sections_that_cannot_be_followed(changes, words: str, tmp_path: Path) -> None:
    write_gptq(tmp_path, INT4)
    edit_config(tmp_path, quantization_config=gptq_section(INT4, **changes))
    with pytest.raises((CheckpointError, UnsupportedError), match=words):
        Checkpoint.open(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bits": 8}, "bits"),
        ({"version": "gemv"}, "gemv"),
        ({"zero_point": False}, "zero_point"),
        ({"q_group_size": 0}, "group_size"),
        ({"q_group_size": 128}, "wrong shape"),
        ({"backend": "llm-awq"}, "llm-awq"),
        ({"extra_config": {"x": {"bits": 8}}}, "extra_config"),
        ({"dynamic": {"x": {"bits": 8}}}, "dynamic"),
        ({"data_type": "mx_fp"}, "data_type"),
    ],
)
def test_awq_sections_that_cannot_be_followed(changes, words: str, tmp_path: Path) -> None:
    write_awq(tmp_path)
    edit_config(tmp_path, quantization_config=awq_section(**changes))
    with pytest.raises((CheckpointError, UnsupportedError), match=words):
        Checkpoint.open(tmp_path)


@pytest.mark.parametrize(
    ("suffix", "array", "dtype", "words"),
    [
        ("g_idx", np.zeros(200, np.int32), "I32", "g_idx' has the wrong shape"),
        ("g_idx", np.full(256, 8, np.int32), "I32", "g_idx.*groups beyond 0 to 7"),
        ("qweight", np.zeros((31, 128), np.int32), "I32", "qweight' has the wrong shape"),
        ("qzeros", np.zeros((8, 15), np.int32), "I32", "qzeros' has the wrong shape"),
        ("scales", np.ones((7, 128), np.float16), "F16", "scales' has the wrong shape"),
        ("weight", np.ones((128, 256), np.float16), "F16", "weight' is not part"),
    ],
)
def test_tensors_that_make_no_sense_name_the_module(
    suffix: str, array, dtype, words: str, tmp_path: Path
) -> None:
    wrong = StoredTensor(dtype=dtype, array=array)
    write_gptq(tmp_path, INT4, edit=lambda tensors: tensors.update({f"{MODULE}.{suffix}": wrong}))
    with pytest.raises(CheckpointError, match=rf"{MODULE}.*{words}"):
        Checkpoint.open(tmp_path)


def test_damage_found_when_a_module_is_read_names_it(tmp_path: Path) -> None:
    nan = StoredTensor(dtype="F16", array=np.full((8, 128), np.nan, np.float16))
    write_gptq(tmp_path, INT4, edit=lambda tensors: tensors.update({f"{MODULE}.scales": nan}))
    checkpoint = Checkpoint.open(tmp_path)
    with pytest.raises(CheckpointError, match=rf"{MODULE}: .*scales.*not finite"):
        checkpoint.linear("down", 1)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    write_gptq(tmp_path, INT4, edit=lambda tensors: tensors.pop(f"{MODULE}.qzeros"))
    with pytest.raises(CheckpointError, match=rf"'{MODULE}.qzeros' is missing"):
        Checkpoint.open(tmp_path)
