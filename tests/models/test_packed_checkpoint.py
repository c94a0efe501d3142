"""Checkpoints in compressed-tensors form: the integers by role, and what can be wrong with them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import (
    QuantizationConfig,
    QuantizationStatus,
    apply_quantization_config,
)
from compressed_tensors.quantization.utils.helpers import calculate_qparams
from transformers import AutoModelForCausalLM, CompressedTensorsConfig

from drivers.scale_layouts import extremes
from fakes.packed_folders import edit_config, write_packed
from fakes.tiny_models import VARIANTS, VOCAB_SIZE
from paredown.errors import CheckpointError, UnsupportedError
from paredown.executors.load import load_executor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.formats.quantize import quantize
from paredown.formats.stored.compressed_tensors.form import encode
from paredown.formats.stored.compressed_tensors.write_section import quantization_config
from paredown.formats.tensor import StoredTensor
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.spec.weight import WeightSpec

INT4 = WeightSpec(dtype="int4", group_size=32)
W8A8 = WeightSpec(dtype="int8", activations="int8_row")
STATIC = WeightSpec(dtype="int8", activations="int8_static")
FP8 = WeightSpec(dtype="fp8")
SPECS = [
    INT4,
    WeightSpec(dtype="int4", group_size=32, symmetric=False),
    WeightSpec(dtype="int3", group_size=32),
    WeightSpec(dtype="int8"),
    W8A8,
    FP8,
]
# What the library rounds inputs to changes its logits, not its weights.
WEIGHT_ONLY = [spec for spec in SPECS if spec != W8A8]
MODULE = "model.layers.1.mlp.down_proj"


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
@pytest.mark.parametrize("variant", ["llama-gqa", "qwen2-tied", "opt"])
def test_integers_by_role(variant: str, spec: WeightSpec, tmp_path: Path) -> None:
    VARIANTS[variant](tmp_path / "float", torch.float32, 0)
    original = Checkpoint.open(tmp_path / "float")
    write_packed(tmp_path / "packed", variant, spec)
    packed = Checkpoint.open(tmp_path / "packed")
    specs = packed.weight_specs()
    for layer in range(2):
        for role in packed.spec.linear_shapes(0):
            expected = quantize(original.linear(role, layer).dequantize(), spec, "fp32")
            weight = packed.linear(role, layer)
            assert weight.spec == specs[packed.linear_name(role, layer)] == spec
            np.testing.assert_array_equal(weight.values_OI, expected.values_OI)
            np.testing.assert_array_equal(weight.dequantize(), expected.dequantize())
    assert packed.output().spec == packed.embedding().spec == WeightSpec(dtype="fp32")


def test_transposed_modules_are_no_linear_modules(tmp_path: Path) -> None:
    """compressed-tensors leaves GPT-2's Conv1D modules in float, whatever the config targets."""
    VARIANTS["gpt2"](tmp_path, torch.float32, 0)
    edit_config(tmp_path, quantization_config=quantization_config(INT4, ["lm_head"]))
    checkpoint = Checkpoint.open(tmp_path)
    assert set(checkpoint.weight_specs().values()) == {WeightSpec(dtype="fp32")}
    assert checkpoint.linear("q", 0).spec == WeightSpec(dtype="fp32")


def test_a_packed_output_layer(tmp_path: Path) -> None:
    VARIANTS["llama-gqa"](tmp_path / "float", torch.float32, 0)
    expected = quantize(Checkpoint.open(tmp_path / "float").output().dequantize(), INT4, "fp32")

    def pack_output(tensors: dict[str, StoredTensor]) -> None:
        del tensors["lm_head.weight"]
        tensors.update({f"lm_head.{name}": tensor for name, tensor in encode(expected).items()})

    write_packed(tmp_path / "packed", "llama-gqa", INT4, pack_output)
    edit_config(tmp_path / "packed", quantization_config=quantization_config(INT4, []))
    checkpoint = Checkpoint.open(tmp_path / "packed")
    assert checkpoint.weight_specs()["lm_head"] == INT4
    np.testing.assert_array_equal(checkpoint.output().dequantize(), expected.dequantize())


@pytest.mark.filterwarnings("ignore:You passed `quantization_config`:UserWarning")
@pytest.mark.parametrize("spec", WEIGHT_ONLY, ids=lambda spec: spec.name)
def test_the_decoder_computes_what_transformers_does_with_our_folder(
    spec: WeightSpec, tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    write_packed(tmp_path, "llama-biases", spec)
    # compressed-tensors 0.20 plans packed zero points in the wrong shape while a model is on the
    # meta device, so Transformers 5 loads asymmetric weights only when it may dequantize them.
    how = (
        {} if spec.symmetric else {"quantization_config": CompressedTensorsConfig(dequantize=True)}
    )
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, **how).eval()
    ours = Decoder.from_checkpoint(Checkpoint.open(tmp_path))
    ids = torch.randint(0, VOCAB_SIZE, (2, 20), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert (theirs(ids).logits - ours(ids)).abs().max().item() <= 1e-4


def write_with_the_library(folder: Path, section: dict[str, object]) -> None:
    """A folder as llm-compressor leaves it, scales from the largest magnitudes."""
    VARIANTS["llama-gqa"](folder / "float", torch.float32, 0)
    model = AutoModelForCausalLM.from_pretrained(folder / "float").eval()
    config = QuantizationConfig.model_validate(section | {"quantization_status": "frozen"})
    apply_quantization_config(model, config)
    for module in model.modules():
        if hasattr(module, "weight_scale"):
            weights = module.quantization_scheme.weights
            low, high = extremes(module.weight.detach(), weights.model_dump())
            scale, zero = calculate_qparams(low, high, weights)
            module.weight_scale.data = scale
            if hasattr(module, "weight_zero_point"):
                module.weight_zero_point.data = zero
            if hasattr(module, "input_scale"):
                module.input_scale.data.fill_(0.125)
            module.quantization_status = QuantizationStatus.FROZEN
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder / "packed")
    compressor.update_config(folder / "packed")


def test_a_folder_that_the_library_wrote(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    write_with_the_library(tmp_path, quantization_config(INT4, ["lm_head"]))
    ours = Checkpoint.open(tmp_path / "packed")
    assert ours.linear("down", 1).spec == INT4
    ids = torch.randint(0, VOCAB_SIZE, (1, 20), generator=torch.Generator().manual_seed(1))
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "packed", dtype=torch.float32).eval()
    with torch.no_grad():
        difference = theirs(ids).logits - Decoder.from_checkpoint(ours)(ids)
    assert difference.abs().max().item() <= 1e-4


@pytest.mark.parametrize("preset", ["W8A8", "FP8_DYNAMIC", "static"])
def test_the_ecosystems_8_bit_folders_load(preset: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    section = quantization_config(STATIC, ["lm_head"])
    if preset != "static":
        groups = {"config_groups": {preset: ["Linear"]}, "ignore": ["lm_head"]}
        section = {"quant_method": "compressed-tensors", **groups}
    write_with_the_library(tmp_path, section)
    ours = Checkpoint.open(tmp_path / "packed")
    weight = ours.linear("down", 1)
    assert weight.spec == {"W8A8": W8A8, "FP8_DYNAMIC": FP8, "static": STATIC}[preset]
    assert weight.input_scale == (0.125 if preset == "static" else None)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "packed", dtype=torch.float32).eval()
    with torch.no_grad():
        theirs(torch.tensor([[1, 2, 3]]))
    expected = theirs.get_submodule(MODULE).weight.detach().numpy()
    np.testing.assert_array_equal(weight.dequantize(), expected)


TOKEN = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
STATIC_FP8 = TOKEN | {"type": "float", "strategy": "tensor", "dynamic": False}
BLOCK = {"strategy": "block", "block_structure": [48, 32]}
# Form, weights, inputs.
FOREIGN = {
    "int8 asymmetric": ("int-quantized", {"strategy": "channel", "symmetric": False}, TOKEN),
    "int8 per tensor": ("int-quantized", {"strategy": "tensor"}, TOKEN),
    "int8 naive": ("naive-quantized", {"strategy": "channel"}, None),
    "int4 naive in groups": (
        "naive-quantized",
        {"num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": False},
        None,
    ),
    "fp8 per tensor": ("float-quantized", {"type": "float", "strategy": "tensor"}, STATIC_FP8),
    "fp8 in blocks": ("float-quantized", {"type": "float"} | BLOCK, TOKEN | {"type": "float"}),
    "fp8 naive": ("naive-quantized", {"type": "float", "strategy": "channel"}, None),
}


def foreign_section(name: str, **others: object) -> dict[str, object]:
    form, weights, inputs = FOREIGN[name]
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs, "format": form}
    section = {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"]}
    return section | {"config_groups": {"group_0": group}} | others


@pytest.mark.parametrize("name", FOREIGN)
def test_layouts_that_only_others_write(name: str, tmp_path: Path) -> None:
    """As Transformers dequantizes them, bit for bit; run on the native core."""
    torch.set_num_threads(1)
    write_with_the_library(tmp_path, foreign_section(name))
    ours = Checkpoint.open(tmp_path / "packed")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "packed", dtype=torch.float32).eval()
    ids = torch.randint(0, VOCAB_SIZE, (1, 20), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        theirs(ids)
        expected = Decoder.from_checkpoint(ours)(ids)[0].numpy()
    weight = ours.linear("down", 1)
    stored = theirs.get_submodule(MODULE).weight.detach().numpy()
    np.testing.assert_array_equal(weight.dequantize(), stored)
    executor = load_executor(
        ours,
        RunOptions(num_pages=8, kv_dtype="fp32", threads=ThreadPlan.resolve(1), activations="fp32"),
    )
    part = SequenceSlice(token_ids=ids[0].tolist(), start=0, pages=[0, 1], num_logits=20)
    difference = executor.step([part]) - expected
    assert np.sqrt(np.mean(difference**2) / np.mean(expected**2)) <= 1e-4
    assert bool(ours.notes) == name.startswith(("fp8 per", "fp8 in"))


@pytest.mark.parametrize("suffix", ["weight_packed", "weight_scale", "weight_shape"])
def test_a_missing_tensor_is_named(suffix: str, tmp_path: Path) -> None:
    name = f"{MODULE}.{suffix}"
    write_packed(tmp_path, "llama-gqa", INT4, lambda tensors: tensors.pop(name))
    with pytest.raises(CheckpointError) as caught:
        Checkpoint.open(tmp_path)
    assert f"'{name}' is missing" in str(caught.value)


@pytest.mark.parametrize("suffix", ["weight", "weight_zero_point", "weight_g_idx"])
def test_an_extra_tensor_is_named(suffix: str, tmp_path: Path) -> None:
    name = f"{MODULE}.{suffix}"
    extra = StoredTensor(dtype="F32", array=np.ones((64, 96), np.float32))
    write_packed(tmp_path, "llama-gqa", INT4, lambda tensors: tensors.update({name: extra}))
    with pytest.raises(CheckpointError) as caught:
        Checkpoint.open(tmp_path)
    assert f"'{name}' is not part of the model" in str(caught.value)


@pytest.mark.parametrize(
    ("suffix", "array"),
    [
        ("weight_packed", np.zeros((64, 11), np.int32)),
        ("weight_scale", np.ones((64, 4), np.float32)),
        ("weight_shape", np.array([64, 96, 1])),
    ],
)
def test_a_wrong_shape_is_named(
    suffix: str, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], tmp_path: Path
) -> None:
    dtypes = {"int32": "I32", "float32": "F32", "int64": "I64"}
    wrong = StoredTensor(dtype=dtypes[str(array.dtype)], array=array)
    name = f"{MODULE}.{suffix}"
    write_packed(tmp_path, "llama-gqa", INT4, lambda tensors: tensors.update({name: wrong}))
    with pytest.raises(CheckpointError) as caught:
        Checkpoint.open(tmp_path)
    assert f"'{name}' has the wrong shape" in str(caught.value)


def test_a_shape_that_contradicts_the_config_is_named(tmp_path: Path) -> None:
    wrong = StoredTensor(dtype="I64", array=np.array([96, 64]))
    name = f"{MODULE}.weight_shape"
    write_packed(tmp_path, "llama-gqa", INT4, lambda tensors: tensors.update({name: wrong}))
    with pytest.raises(CheckpointError, match=rf"{MODULE}: tensor weight_shape.*\[96, 64\]"):
        Checkpoint.open(tmp_path)


def test_damage_found_when_a_module_is_read_names_the_module(tmp_path: Path) -> None:
    scale = StoredTensor(dtype="F32", array=np.full((64, 3), np.nan, np.float32))
    name = f"{MODULE}.weight_scale"
    write_packed(tmp_path, "llama-gqa", INT4, lambda tensors: tensors.update({name: scale}))
    checkpoint = Checkpoint.open(tmp_path)
    with pytest.raises(CheckpointError, match=rf"module {MODULE}: .*weight_scale"):
        checkpoint.linear("down", 1)


def test_fp8_numbers_that_are_none_name_the_module(tmp_path: Path) -> None:
    codes = StoredTensor(dtype="F8_E4M3", array=np.full((64, 96), 0xFF, np.uint8))
    name = f"{MODULE}.weight"
    write_packed(tmp_path, "llama-gqa", FP8, lambda tensors: tensors.update({name: codes}))
    checkpoint = Checkpoint.open(tmp_path)
    with pytest.raises(CheckpointError, match=rf"module {MODULE}: .*NaN"):
        checkpoint.linear("down", 1)


def test_groups_that_do_not_divide_the_columns(tmp_path: Path) -> None:
    write_packed(tmp_path, "llama-gqa", INT4)
    wider = quantization_config(WeightSpec(dtype="int4", group_size=128), ["lm_head"])
    edit_config(tmp_path, quantization_config=wider)
    with pytest.raises(CheckpointError, match="64 columns in groups of 128"):
        Checkpoint.open(tmp_path)


@pytest.mark.parametrize("spec", [INT4, W8A8, FP8], ids=lambda spec: spec.name)
@pytest.mark.parametrize("status", ["frozen", None])
def test_codes_are_codes_whatever_the_status_is(
    status: str | None, spec: WeightSpec, tmp_path: Path
) -> None:
    write_packed(tmp_path, "llama-gqa", spec)
    expected = Checkpoint.open(tmp_path).linear("down", 1)
    section = quantization_config(spec, ["lm_head"]) | {"quantization_status": status}
    edit_config(tmp_path, quantization_config=section)
    checkpoint = Checkpoint.open(tmp_path)
    assert checkpoint.notes == ()
    assert np.array_equal(checkpoint.linear("down", 1).values_OI, expected.values_OI)


@pytest.mark.parametrize("spec", [INT4, W8A8, FP8], ids=lambda spec: spec.name)
def test_floats_beside_scales_are_refused(spec: WeightSpec, tmp_path: Path) -> None:
    def to_floats(tensors: dict[str, StoredTensor]) -> None:
        tensors.pop(f"{MODULE}.weight_packed", None)
        floats = StoredTensor(dtype="F32", array=np.ones((64, 96), np.float32))
        tensors[f"{MODULE}.weight"] = floats

    write_packed(tmp_path, "llama-gqa", spec, to_floats)
    section = quantization_config(spec, ["lm_head"]) | {"quantization_status": "frozen"}
    edit_config(tmp_path, quantization_config=section)
    with pytest.raises(UnsupportedError, match=rf"{MODULE}.*floats beside scales"):
        Checkpoint.open(tmp_path)


@pytest.mark.parametrize(
    ("section", "error", "words"),
    [
        ({"quant_method": "gptq", "bits": 4}, CheckpointError, "qweight"),
        ({"quant_method": "awq"}, CheckpointError, "qweight"),
        ({"quant_method": "exl2"}, UnsupportedError, "exl2"),
        ("int4", CheckpointError, "'quantization_config'"),
        ({}, UnsupportedError, "quant_method"),
    ],
)
def test_other_quantization_is_refused(
    section: object, error: type[Exception], words: str, tmp_path: Path
) -> None:
    VARIANTS["llama-gqa"](tmp_path, torch.float32, 0)
    edit_config(tmp_path, quantization_config=section)
    with pytest.raises(error, match=words):
        Checkpoint.open(tmp_path)
