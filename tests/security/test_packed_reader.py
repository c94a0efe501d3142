"""A packed file may claim anything: a start takes it, packs anew or refuses, and never dies of it
or computes something else."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from tools.fuzz.seeds import LLAMA

from fakes.tiny_models import VARIANTS
from paredown.kernels import _core
from paredown.kernels.blob_fields import blob_fields
from paredown.kernels.core_config import core_config
from paredown.models.config import spec_from_config
from paredown.spec.context import Context
from paredown.spec.kv import KVSpec
from paredown.spec.model import ModelSpec

TESTS = Path(__file__).parent.parent
POSITIONS = 2**31 - 1


@cache
def outcomes(model: str, bitmap: str = "auto") -> tuple[int, dict[str, str]]:
    """The exit code of a process that starts on each forgery, and how each start ended."""
    with TemporaryDirectory() as root:
        folder = Path(root) / "model"
        VARIANTS[model](folder, torch.bfloat16, 0)
        config = json.loads((folder / "config.json").read_text())
        if model.startswith("llama"):
            config["max_position_embeddings"] = POSITIONS
        (folder / "config.json").write_text(json.dumps(config))
        ended = subprocess.run(
            [sys.executable, "-m", "drivers.forged_start", str(folder)],
            env={
                **os.environ,
                "XDG_CACHE_HOME": f"{root}/cache",
                "PYTHONPATH": str(TESTS),
                "PAREDOWN_BITMAP": bitmap,
            },
            capture_output=True,
            text=True,
            check=False,
        )
    decoder, found = json.JSONDecoder(), {}
    for line in ended.stdout.splitlines():
        name, end = decoder.raw_decode(line)
        found[name] = decoder.raw_decode(line[end:].strip())[0] if line[end:].strip() else "died"
    assert found, ended.stderr
    return ended.returncode, found


def llama_spec() -> ModelSpec:
    return spec_from_config(LLAMA)


@pytest.fixture
def llama() -> _core.Model:
    """One without weights."""
    config = core_config(Context(spec=llama_spec()), KVSpec(num_pages=2))
    return _core.Model(config, "generic", 1, 1)


@pytest.mark.parametrize("model", ["llama-gqa", "llama-tied", "opt"])
def test_no_forged_file_ends_the_process(model: str) -> None:
    code, found = outcomes(model)
    assert "died" not in found.values(), [name for name, how in found.items() if how == "died"]
    assert code == 0


@pytest.mark.parametrize("model", ["llama-gqa", "llama-tied", "opt"])
def test_no_forged_table_or_size_is_computed_with(model: str) -> None:
    """An embedding of other rows is not noticed here: where a file may come from is another
    promise."""
    _, found = outcomes(model)
    taken = {name for name, how in found.items() if how == "other"}
    assert taken <= {"another embedding"}


def test_no_forged_bitmap_is_computed_with() -> None:
    """Every count and every place of a weight with zeros is checked."""
    code, found = outcomes("llama-gqa", "always")
    assert code == 0
    bitmaps = {name: how for name, how in found.items() if name.startswith("bitmap: ")}
    assert len(bitmaps) > 10
    assert set(bitmaps.values()) == {"same"}
    assert "died" not in found.values()


def test_positions_are_refused_for_rotary_models(llama: _core.Model) -> None:
    table = np.zeros((4, 32), np.float32)
    with pytest.raises(ValueError, match="rotary"):
        llama.set_positions("fp32", table, 0)
    for offset in (0, 2**63 - 1 - 2**30, -(2**40)):
        with pytest.raises(ValueError, match="rotary"):
            llama.borrow_positions("fp32", table.reshape(-1).view(np.uint8), offset)


def test_a_table_is_made_of_floats_that_lie_aligned(llama: _core.Model) -> None:
    size = llama_spec().vocab_size * llama_spec().hidden_size * 4
    data = np.zeros(size + 1, np.uint8)
    with pytest.raises(ValueError, match="fp32, fp16 or bf16"):
        llama.borrow_embedding("q4_k", data[:size])
    with pytest.raises(ValueError, match="does not lie"):
        llama.borrow_embedding("fp32", data[1:])


def test_a_model_does_not_step_without_its_weights(llama: _core.Model) -> None:
    out = np.zeros((1, llama_spec().vocab_size), np.float32)
    with pytest.raises(ValueError, match="wrong"):
        llama.step([0], [0], [1], [1], [[0]], [0], [], [], [], out)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("vocab_size", 2**40, "a vocabulary has"),
        ("vocab_size", 0, "a vocabulary has"),
        ("hidden_size", 2**60, "hidden_size"),
        ("max_positions", 2**31, "31 bits"),
        ("max_positions", 0, "31 bits"),
        ("num_pages", 2**62, "number of pages"),
        ("num_pages", -1, "number of pages"),
    ],
)
def test_sizes_beyond_what_is_counted_are_refused(name: str, value: int, words: str) -> None:
    config = core_config(Context(spec=llama_spec()), KVSpec(num_pages=2)) | {name: value}
    with pytest.raises(ValueError, match=words):
        _core.step_bytes(config, 1, 16)
    with pytest.raises(ValueError, match=words):
        _core.Model(config, "generic", 1, 1)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"role": "o"}, "has the fields"),
        ({"role": "o", "layer": 0, "more": 1}, "has the fields"),
        ({"role": 1, "layer": 0}, "'role' of a blob is no str"),
        ({"role": "o", "layer": True}, "'layer' of a blob is no int"),
        ({"role": "o", "layer": 2**63}, "more than 64 bits"),
        ({"role": "\ud800", "layer": 0}, "is no name"),
    ],
)
def test_fields_of_blobs_are_those_that_are_known(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        blob_fields(fields, {"role": str, "layer": int})
