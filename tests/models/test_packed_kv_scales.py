"""Keys and values as a checkpoint in compressed-tensors form asks for them: formats and scales."""

from pathlib import Path

import numpy as np
import pytest

from fakes.packed_folders import edit_config, write_packed
from paredown.errors import CheckpointError, ConfigError
from paredown.executors.load import load_executor
from paredown.executors.run_options import RunOptions
from paredown.formats.stored.compressed_tensors.write_section import quantization_config
from paredown.formats.tensor import StoredTensor
from paredown.models.checkpoint import Checkpoint
from paredown.models.kv_scales import used_kv_scales
from paredown.spec.kv import KVScales, KVSpec
from paredown.spec.weight import WeightSpec

INT4 = WeightSpec(dtype="int4", group_size=32)
TOKEN = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}


@pytest.mark.parametrize("kind", ["int", "float"])
def test_keys_and_values_are_kept_as_the_checkpoint_asks(kind: str, tmp_path: Path) -> None:
    section = quantization_config(INT4, ["lm_head"])
    section["kv_cache_scheme"] = TOKEN | {"type": kind, "strategy": "tensor", "dynamic": False}
    scale = StoredTensor(dtype="F32", array=np.ones(1, np.float32))
    names = [f"model.layers.{i}.self_attn.{one}_scale" for i in range(2) for one in "kv"]
    scales = dict.fromkeys(names, scale)
    write_packed(tmp_path, "llama-gqa", INT4, lambda tensors: tensors.update(scales))
    with pytest.raises(CheckpointError, match="k_scale' is not part"):
        Checkpoint.open(tmp_path)
    edit_config(tmp_path, quantization_config=section)
    checkpoint = Checkpoint.open(tmp_path)
    assert not checkpoint.notes
    assert checkpoint.kv_dtype == {"int": "int8-static", "float": "fp8-static"}[kind]
    assert load_executor(checkpoint, RunOptions(num_pages=8)).kv_dtype == checkpoint.kv_dtype
    assert load_executor(checkpoint, RunOptions(num_pages=8, kv_dtype="fp32")).kv_dtype == "fp32"
    mixed = load_executor(
        checkpoint, RunOptions(num_pages=8, kv_dtype=f"bf16,last1={checkpoint.kv_dtype}")
    )
    assert mixed.kv_dtype == ("bf16", checkpoint.kv_dtype)
    other = {"int": "fp8-static", "float": "int8-static"}[kind]
    with pytest.raises(ConfigError, match=f"{other} keys and values need scales"):
        load_executor(checkpoint, RunOptions(num_pages=8, kv_dtype=other))


def test_int4_scales_that_are_stored_are_not_used(tmp_path: Path) -> None:
    section = quantization_config(INT4, ["lm_head"])
    section["kv_cache_scheme"] = {"num_bits": 4, "type": "int", "symmetric": True}
    write_packed(tmp_path, "llama-gqa", INT4)
    edit_config(tmp_path, quantization_config=section)
    checkpoint = Checkpoint.open(tmp_path)
    (note,) = checkpoint.notes
    assert "int4 pages find a scale for each token" in note
    assert load_executor(checkpoint, RunOptions(num_pages=8)).kv_dtype == "int4"


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        (None, "'model.layers.1.self_attn.v_scale' is missing"),
        ([0.0], "is not above 0"),
        ([-1.0], "is not above 0"),
        ([float("nan")], "is not above 0"),
        ([float("inf")], "is not above 0"),
        ([1.0] * 3, "has the wrong shape"),
    ],
)
def test_damaged_scales_of_keys_and_values_are_named(
    scale: list[float] | None, message: str, tmp_path: Path
) -> None:
    section = quantization_config(INT4, ["lm_head"])
    section["kv_cache_scheme"] = TOKEN | {"type": "float", "strategy": "tensor", "dynamic": False}
    one = StoredTensor(dtype="F32", array=np.ones(1, np.float32))
    names = [f"model.layers.{i}.self_attn.{point}_scale" for i in range(2) for point in "kv"]
    scales = dict.fromkeys(names, one)
    if scale is None:
        del scales[names[-1]]
    else:
        scales[names[-1]] = StoredTensor(dtype="F32", array=np.array(scale, np.float32))
    write_packed(tmp_path, "llama-gqa", INT4, lambda tensors: tensors.update(scales))
    edit_config(tmp_path, quantization_config=section)
    checkpoint = Checkpoint.open(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        load_executor(checkpoint, RunOptions(num_pages=8))
    assert load_executor(checkpoint, RunOptions(num_pages=8, kv_dtype="fp8")).kv_dtype == "fp8"


def test_a_scale_for_each_head(tmp_path: Path) -> None:
    section = quantization_config(INT4, ["lm_head"])
    scheme = TOKEN | {"type": "float", "strategy": "attn_head", "dynamic": False}
    section["kv_cache_scheme"] = scheme
    heads = np.array([0.5, 2.0], np.float32).reshape(2, 1, 1)
    names = [f"model.layers.{i}.self_attn.{point}_scale" for i in range(2) for point in "kv"]
    scales = dict.fromkeys(names, StoredTensor(dtype="F32", array=heads))
    write_packed(tmp_path, "llama-gqa", INT4, lambda tensors: tensors.update(scales))
    edit_config(tmp_path, quantization_config=section)
    checkpoint = Checkpoint.open(tmp_path)
    found = used_kv_scales(checkpoint, KVSpec(num_pages=1, dtype=("fp8-static", "bf16")))
    assert found == {0: KVScales(keys=(0.5, 2.0), values=(0.5, 2.0))}
    assert load_executor(checkpoint, RunOptions(num_pages=8)).kv_dtype == "fp8-static"
