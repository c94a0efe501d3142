"""Experts stored as one tensor for a layer are those of a checkpoint with a tensor for each."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from fakes.tiny_models import VARIANTS, make_model
from paredown.errors import CheckpointError
from paredown.executors.load import load_executor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint

FAMILIES = {"mixtral": "mixtral", "qwen2-moe": "qwen2_moe", "qwen3-moe": "qwen3_moe"}
IDS = list(range(3, 30))


def write_fused(variant: str, folder: Path) -> torch.nn.Module:
    """The model with its tensors as they are in Transformers' memory, and that model."""
    VARIANTS[variant](folder, torch.float32, 1)
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    state = {name: one.clone() for name, one in model.state_dict().items()}
    assert any(re.search(r"experts\.gate_up_proj$", name) for name in state)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return model


@pytest.mark.parametrize("variant", FAMILIES)
def test_tensors_are_those_of_each_expert(variant: str, tmp_path: Path) -> None:
    VARIANTS[variant](tmp_path / "split", torch.float32, 1)
    write_fused(variant, tmp_path / "fused")
    split, fused = (Checkpoint.open(tmp_path / name) for name in ("split", "fused"))
    assert fused.tensors.keys() == split.tensors.keys()
    for name in split.tensors:
        array = fused.tensors[name].array
        np.testing.assert_array_equal(array, split.tensors[name].array)
        assert not array.flags.owndata
    assert fused.weight_specs() == split.weight_specs()


@pytest.mark.parametrize("variant", FAMILIES)
@pytest.mark.parametrize("name", ["native", "torch"])
def test_logits_are_those_of_transformers(variant: str, name: str, tmp_path: Path) -> None:
    theirs = write_fused(variant, tmp_path)
    options = RunOptions(executor=name, num_pages=8, activations="fp32", kv_dtype="fp32")
    executor = load_executor(Checkpoint.open(tmp_path), options)
    logits = executor.step([SequenceSlice(IDS, 0, list(range(8)), len(IDS))])
    with torch.no_grad():
        expected = theirs(torch.tensor([IDS])).logits[0]
    torch.testing.assert_close(torch.from_numpy(logits), expected, rtol=1e-3, atol=1e-3)


def changed(folder: Path, **tensors: torch.Tensor | None) -> None:
    path = folder / "model.safetensors"
    stored = load_file(path)
    for name, tensor in tensors.items():
        full = f"model.layers.1.mlp.experts.{name}"
        stored.pop(full)
        if tensor is not None:
            stored[full] = tensor
    save_file(stored, path, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"down_proj": torch.zeros(6, 64)}, ["down_proj", "[6, 64]", "[experts, hidden, size]"]),
        ({"gate_up_proj": torch.zeros(6, 63, 64)}, ["gate_up_proj", "63", "2 size"]),
        ({"down_proj": None}, ["layers.1.mlp.experts.0.down_proj.weight", "missing"]),
        ({"gate_up_proj": torch.zeros(5, 64, 64)}, ["mlp.experts.5.", "missing"]),
        ({"gate_up_proj": torch.zeros(7, 64, 64)}, ["experts.6.gate_proj.weight", "not part"]),
        ({"down_proj": torch.zeros(6, 32, 64)}, ["experts.0.down_proj.weight", "wrong shape"]),
    ],
)
def test_what_does_not_fit_is_named(
    tensors: dict[str, torch.Tensor | None], words: list[str], tmp_path: Path
) -> None:
    write_fused("qwen3-moe", tmp_path)
    changed(tmp_path, **tensors)
    with pytest.raises(CheckpointError) as caught:
        Checkpoint.open(tmp_path)
    assert all(word in str(caught.value) for word in words)


def test_one_more_copy_of_an_expert_is_not_passed_over(tmp_path: Path) -> None:
    write_fused("qwen3-moe", tmp_path)
    path = tmp_path / "model.safetensors"
    copy = {"model.layers.1.mlp.experts.0.down_proj.weight": torch.zeros(64, 32)}
    save_file(load_file(path) | copy, path, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"experts\.down_proj"):
        Checkpoint.open(tmp_path)


def test_a_dense_model_has_no_such_names(tmp_path: Path) -> None:
    make_model("qwen3", torch.float32, 1).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    more = {"model.layers.1.mlp.experts.down_proj": torch.zeros(2, 4, 4)}
    save_file(load_file(path) | more, path, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="not part of the model"):
        Checkpoint.open(tmp_path)
