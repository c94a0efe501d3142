"""Sharded checkpoints: an index file and the files it names."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.tiny_models import make_model
from paredown.errors import CheckpointError
from paredown.formats.tensor import StoredTensor
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.safetensors_file import write_safetensors
from paredown.models.files.shards import read_folder_tensors

ONE = StoredTensor(dtype="F32", array=np.ones(2, np.float32))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_shards_hold_the_same_tensors_as_one_file(family: str, tmp_path: Path) -> None:
    model = make_model(family, torch.bfloat16, seed=0)
    model.save_pretrained(tmp_path / "one")
    model.save_pretrained(tmp_path / "many", max_shard_size="60KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    one = Checkpoint.open(tmp_path / "one")
    many = Checkpoint.open(tmp_path / "many")
    assert set(one.tensors) == set(many.tensors)
    for name, tensor in one.tensors.items():
        assert tensor.dtype == many.tensors[name].dtype == "BF16"
        np.testing.assert_array_equal(tensor.array, many.tensors[name].array)
    sizes = [path.stat().st_size for path in (tmp_path / "many").glob("*.safetensors")]
    assert many.file_bytes == sum(sizes)


def write_shards(folder: Path, weight_map: object) -> None:
    """Two files with tensors a, b and c, d, and an index that says `weight_map`."""
    write_safetensors(folder / "1.safetensors", {"a": ONE, "b": ONE})
    write_safetensors(folder / "2.safetensors", {"c": ONE, "d": ONE})
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))


GOOD = {name: f"{1 + (name > 'b')}.safetensors" for name in "abcd"}


def test_a_good_index(tmp_path: Path) -> None:
    write_shards(tmp_path, GOOD)
    assert sorted(read_folder_tensors(tmp_path)) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("weight_map", "words"),
    [
        (None, "has no weight_map"),
        ({}, "has no weight_map"),
        ([1], "has no weight_map"),
        (GOOD | {"a": 3}, "places tensor 'a' outside"),
        (GOOD | {"a": "../1.safetensors"}, "places tensor 'a' outside"),
        (GOOD | {"a": "/etc/passwd"}, "places tensor 'a' outside"),
        (GOOD | {"a": ".."}, "cannot be read"),
        (GOOD | {"a": "3.safetensors"}, "3.safetensors cannot be read"),
        (GOOD | {"a": "2.safetensors"}, "2.safetensors lacks tensor 'a'"),
        (GOOD | {"e": "2.safetensors"}, "2.safetensors lacks tensor 'e'"),
        ({"b": "1.safetensors"}, "1.safetensors holds tensor 'a'"),
    ],
)
def test_a_bad_index_is_named(weight_map: object, words: str, tmp_path: Path) -> None:
    write_shards(tmp_path, weight_map)
    with pytest.raises(CheckpointError) as caught:
        read_folder_tensors(tmp_path)
    assert words in str(caught.value)


def test_an_index_that_is_not_json(tmp_path: Path) -> None:
    write_shards(tmp_path, GOOD)
    (tmp_path / "model.safetensors.index.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"index\.json is not valid JSON"):
        read_folder_tensors(tmp_path)


def test_no_weights_at_all_tells_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"saw: pytorch_model\.bin"):
        read_folder_tensors(tmp_path)
