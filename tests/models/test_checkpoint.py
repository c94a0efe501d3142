"""Checkpoints of every family by role, and every way in which a folder can be wrong."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.tiny_models import VARIANTS, make_model, write_model
from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.floating import cast
from paredown.formats.tensor import StoredTensor
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.safetensors_file import read_safetensors, write_safetensors
from paredown.spec.weight import WeightDType, WeightSpec

DTYPES: dict[WeightDType, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_tensors(folder: Path, edit: Callable[[dict[str, StoredTensor]], object]) -> None:
    """Rewrites the folder's file after `edit` changed the tensors."""
    path = folder / "model.safetensors"
    tensors = dict(read_safetensors(path))
    edit(tensors)
    write_safetensors(path, tensors, {"format": "pt"})


def floats(*shape: int) -> StoredTensor:
    return StoredTensor(dtype="F32", array=np.ones(shape, np.float32))


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    VARIANTS["llama-gqa"](tmp_path, torch.float32, 0)
    return tmp_path


@pytest.mark.parametrize("name", VARIANTS)
def test_every_tensor_is_used_and_every_parameter_counted(name: str, tmp_path: Path) -> None:
    VARIANTS[name](tmp_path, torch.float32, 0)
    checkpoint = Checkpoint.open(tmp_path)
    stored = read_safetensors(tmp_path / "model.safetensors")
    assert set(checkpoint.tensors) == set(stored)
    count = sum(tensor.array.size for tensor in stored.values())
    assert checkpoint.spec.num_parameters() == count
    assert checkpoint.file_bytes == (tmp_path / "model.safetensors").stat().st_size
    for layer in range(checkpoint.spec.num_layers):
        for role, shape in checkpoint.spec.linear_shapes(layer).items():
            assert checkpoint.linear(role, layer).shape == shape
            module = checkpoint.linear_name(role, layer)
            assert f"{module}.weight" in stored
            assert checkpoint.weight_specs()[module] == WeightSpec(dtype="fp32")


@pytest.mark.parametrize("dtype", DTYPES)
def test_stored_numbers_are_not_changed(dtype: WeightDType, tmp_path: Path) -> None:
    write_model("llama", {}, tmp_path, DTYPES[dtype], 0)
    checkpoint = Checkpoint.open(tmp_path)
    model = make_model("llama", DTYPES[dtype], 0)
    weight = checkpoint.linear("down", 1)
    assert weight.spec == WeightSpec(dtype=dtype)
    theirs = model.get_submodule("model.layers.1.mlp.down_proj").weight
    bits = torch.int32 if dtype == "fp32" else torch.int16
    ours = weight.values_OI.view(np.int32 if dtype == "fp32" else np.int16)
    np.testing.assert_array_equal(ours, theirs.view(bits).numpy())
    norm = model.get_submodule("model.layers.1.input_layernorm").weight
    values = checkpoint.vector("attention_norm.weight", 1)
    assert values is not None
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, norm.float().detach().numpy())


def test_gpt2_thirds_of_the_fused_module(tmp_path: Path) -> None:
    write_model("gpt2", {}, tmp_path, torch.float32, 0)
    checkpoint = Checkpoint.open(tmp_path)
    fused = make_model("gpt2", torch.float32, 0).get_submodule("transformer.h.1.attn.c_attn")
    for part, role in enumerate("qkv"):
        rows = slice(64 * part, 64 * part + 64)
        assert checkpoint.linear_name(role, 1) == "transformer.h.1.attn.c_attn"
        np.testing.assert_array_equal(
            checkpoint.linear(role, 1).values_OI, fused.weight.detach().numpy().T[rows]
        )
        np.testing.assert_array_equal(
            checkpoint.vector(f"{role}.bias", 1), fused.bias.detach().numpy()[rows]
        )


def test_vectors_that_a_spec_lacks_are_none(llama: Path) -> None:
    checkpoint = Checkpoint.open(llama)
    for role in ("q.bias", "o.bias", "up.bias", "attention_norm.bias", "q_norm.weight"):
        assert checkpoint.vector(role, 0) is None
    assert checkpoint.vector("final_norm.bias") is None
    assert checkpoint.vector("final_norm.weight") is not None
    assert checkpoint.position_embedding() is None


def test_learned_positions_have_all_their_rows(tmp_path: Path) -> None:
    VARIANTS["opt"](tmp_path, torch.float32, 0)
    table = Checkpoint.open(tmp_path).position_embedding()
    assert table is not None
    assert table.shape == (130, 64)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "opt"])
def test_files_of_the_bare_model_have_another_prefix(family: str, tmp_path: Path) -> None:
    model = make_model(family, torch.float32, 0, tie_word_embeddings=True)
    model.save_pretrained(tmp_path / "whole")
    model.base_model.save_pretrained(tmp_path / "bare")
    whole = Checkpoint.open(tmp_path / "whole")
    bare = Checkpoint.open(tmp_path / "bare")
    assert bare.linear_name("o", 0) != whole.linear_name("o", 0)
    assert whole.linear_name("o", 0).endswith(bare.linear_name("o", 0))
    for role in bare.spec.linear_shapes(0):
        ours = bare.linear(role, 1).values_OI
        np.testing.assert_array_equal(ours, whole.linear(role, 1).values_OI)


def test_known_leftovers_are_ignored(llama: Path, tmp_path: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    edit_tensors(llama, lambda tensors: tensors.update({name: floats(8)}))
    assert name not in Checkpoint.open(llama).tensors
    gpt2 = tmp_path / "gpt2"
    VARIANTS["gpt2"](gpt2, torch.float32, 0)
    masks = {f"transformer.h.0.attn.{name}": floats(1) for name in ("bias", "masked_bias")}
    edit_tensors(gpt2, lambda tensors: tensors.update(masks))
    assert not masks.keys() & Checkpoint.open(gpt2).tensors.keys()


def test_a_copy_of_the_tied_embedding_is_ignored_if_it_is_one(tmp_path: Path) -> None:
    VARIANTS["llama-tied"](tmp_path, torch.float32, 0)

    def copy(tensors: dict[str, StoredTensor]) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]

    edit_tensors(tmp_path, copy)
    assert "lm_head.weight" not in Checkpoint.open(tmp_path).tensors
    edit_tensors(tmp_path, lambda tensors: tensors.update({"lm_head.weight": floats(300, 64)}))
    with pytest.raises(CheckpointError, match=r"'lm_head.weight' differs"):
        Checkpoint.open(tmp_path)


def test_a_copy_of_the_tied_embedding_in_another_dtype_is_told_as_such(tmp_path: Path) -> None:
    VARIANTS["llama-tied"](tmp_path, torch.float32, 0)

    def copy(tensors: dict[str, StoredTensor]) -> None:
        rounded = cast(tensors["model.embed_tokens.weight"].to_float32(), "bf16").tensor
        tensors["lm_head.weight"] = rounded
        tensors["model.embed_tokens.weight"] = cast(rounded.to_float32(), "fp32").tensor

    edit_tensors(tmp_path, copy)
    with pytest.raises(CheckpointError, match=r"differs in its dtype alone .*BF16 and F32"):
        Checkpoint.open(tmp_path)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    VARIANTS["llama-biases"](tmp_path, torch.float32, 0)
    whole = (tmp_path / "model.safetensors").read_bytes()
    for name in list(read_safetensors(tmp_path / "model.safetensors")):
        edit_tensors(tmp_path, lambda tensors, name=name: tensors.pop(name))
        with pytest.raises(CheckpointError) as caught:
            Checkpoint.open(tmp_path)
        assert f"'{name}' is missing" in str(caught.value)
        (tmp_path / "model.safetensors").write_bytes(whole)


@pytest.mark.parametrize(
    ("variant", "name"),
    [
        ("llama-gqa", "model.layers.2.mlp.up_proj.weight"),
        ("llama-gqa", "model.layers.0.mlp.up_proj.bias"),
        ("llama-gqa", "surprise"),
        ("gpt2", "transformer.h.0.attn.c_attn.masked_bias"),
        ("opt", "model.decoder.project_in.weight"),
    ],
)
def test_an_extra_tensor_is_named(variant: str, name: str, tmp_path: Path) -> None:
    VARIANTS[variant](tmp_path, torch.float32, 0)
    edit_tensors(tmp_path, lambda tensors: tensors.update({name: floats(3)}))
    with pytest.raises(CheckpointError) as caught:
        Checkpoint.open(tmp_path)
    assert f"'{name}' is not part of the model" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "name", "seen"),
    [
        ({"intermediate_size": 128}, "mlp.up_proj.weight", "[96, 64], config.json asks for [128"),
        ({"num_key_value_heads": 4}, "self_attn.k_proj.weight", "[32, 64]"),
        ({"vocab_size": 301}, "model.embed_tokens.weight", "[300, 64]"),
        ({"hidden_size": 128, "head_dim": 16}, "model.embed_tokens.weight", "[300, 64]"),
    ],
)
def test_a_wrong_shape_is_named(
    changes: dict[str, object], name: str, seen: str, llama: Path
) -> None:
    edit_config(llama, **changes)
    with pytest.raises(CheckpointError) as caught:
        Checkpoint.open(llama)
    assert name in str(caught.value)
    assert "has the wrong shape" in str(caught.value)
    assert seen in str(caught.value)


def test_more_layers_than_weights_ends_at_the_first_missing_one(llama: Path) -> None:
    edit_config(llama, num_hidden_layers=2**31 - 1)
    with pytest.raises(CheckpointError, match=r"num_hidden_layers.*1 to 10000"):
        Checkpoint.open(llama)
    edit_config(llama, num_hidden_layers=10_000)
    with pytest.raises(CheckpointError, match=r"model\.layers\.2\..* is missing"):
        Checkpoint.open(llama)


def test_weights_of_no_float_dtype_are_named(llama: Path) -> None:
    codes = StoredTensor(dtype="I8", array=np.ones((96, 64), np.int8))
    name = "model.layers.0.mlp.up_proj.weight"
    edit_tensors(llama, lambda tensors: tensors.update({name: codes}))
    with pytest.raises(CheckpointError, match=r"up_proj\.weight' is not of a float dtype.*saw: I8"):
        Checkpoint.open(llama)


def test_a_folder_without_config(llama: Path) -> None:
    (llama / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"has no config\.json \(saw: .*model\.safetensors"):
        Checkpoint.open(llama)


@pytest.mark.parametrize("name", ["none", "config.json"])
def test_what_is_not_a_folder(name: str, llama: Path) -> None:
    with pytest.raises(CheckpointError, match=f"{name} is not a checkpoint folder"):
        Checkpoint.open(llama / name)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "is not valid JSON"),
        (b"\xff\xfe", "is not valid JSON"),
        (b"[" * 100_000, "is not valid JSON"),
        (b"[]", "does not hold a JSON object"),
        (b"{}", "lacks the field 'model_type'"),
    ],
)
def test_a_damaged_config(content: bytes, words: str, llama: Path) -> None:
    (llama / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        Checkpoint.open(llama)
    assert words in str(caught.value)
    assert "config.json" in str(caught.value)


def test_an_unknown_model_type(llama: Path) -> None:
    edit_config(llama, model_type="mamba")
    with pytest.raises(
        UnsupportedError,
        match=r"mamba.*llama, mistral, ministral, ministral3, qwen2, qwen3, mixtral, .*opt",
    ):
        Checkpoint.open(llama)


def test_weights_of_another_family(llama: Path) -> None:
    gpt2 = {"vocab_size": 300, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128}
    (llama / "config.json").write_text(json.dumps({"model_type": "gpt2", **gpt2}))
    with pytest.raises(CheckpointError, match=r"'transformer\.wte\.weight' is missing"):
        Checkpoint.open(llama)


def test_a_truncated_file(llama: Path) -> None:
    path = llama / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged: the file ends"):
        Checkpoint.open(llama)


def test_reading_a_checkpoint_needs_no_torch() -> None:
    modules = ("checkpoint", "files.output_folder", "resolve", "text.tokenizer")
    imports = "; ".join(f"import paredown.models.{module}" for module in modules)
    script = f"{imports}; import sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
