"""GPTQ and AWQ folders, between us and the libraries that own the formats: Transformers with
GPTQModel reads what we write, and we read what GPTQModel writes, to the same bits.

`make parity` gives GPTQModel an environment of its own (benchmarks/install/gptqmodel.sh).
"""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from fakes.tiny_models import make_model
from paredown.compress.compress import compress
from paredown.compress.convert.convert import convert
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model

ROOT = Path(__file__).parents[1]
PYTHON = ROOT / ".venv-gptqmodel" / "bin" / "python"
SIDE = ROOT / "parity" / "gptqmodel_side.py"
# Groups of 32 and whole words divide these.
WIDE = {"hidden_size": 128, "intermediate_size": 256}


def ask(folder: Path, *arguments: str | Path) -> None:
    """In `folder`, where GPTQModel leaves its logs."""
    # It wants two workers to load with, and takes half as many as there are cores.
    environment = os.environ | {"GPTQMODEL_CPU_WORKERS": "2"}
    done = subprocess.run(
        [PYTHON, SIDE, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def their_weights(folder: Path, out: Path) -> dict[str, np.ndarray]:
    ask(out.parent, "read", folder, out)
    return load_file(out)


def check_same_bits(folder: Path, out: Path) -> None:
    """Every quantized layer, as Transformers multiplies with it (in fp16) and as we do."""
    theirs, checkpoint = their_weights(folder, out), Checkpoint.open(folder)
    compared = set()
    for layer in range(checkpoint.spec.num_layers):
        for role in checkpoint.spec.linear_shapes():
            name = checkpoint.linear_name(role, layer)
            weight = checkpoint.linear(role, layer)
            ours = weight.at_work() if weight.spec.is_quantized else weight.values_OI
            assert np.array_equal(ours.astype(np.float16), theirs[name]), name
            compared.add(name)
    assert compared == set(theirs)
    assert compared


@pytest.mark.parametrize("target", ["gptq", "gptq-v2", "awq"])
@pytest.mark.parametrize("recipe", ["int4-g128", "int4-g32-asym"])
def test_transformers_reads_what_we_convert(recipe: str, target: str, tmp_path: Path) -> None:
    compress(Checkpoint.open(resolve_model(None)), tmp_path / "packed", recipe)
    convert(Checkpoint.open(tmp_path / "packed"), tmp_path / target, target)
    check_same_bits(tmp_path / target, tmp_path / "weights.safetensors")


@pytest.mark.parametrize("kind", ["gptq", "gptq-act-order", "awq"])
def test_we_read_what_gptqmodel_writes(kind: str, tmp_path: Path) -> None:
    make_model("llama", torch.float16, 0, **WIDE).save_pretrained(tmp_path / "source")
    for file in resolve_model(None).glob("tokenizer*"):
        shutil.copy(file, tmp_path / "source")
    ask(tmp_path, "write", tmp_path / "source", tmp_path / kind, kind)
    check_same_bits(tmp_path / kind, tmp_path / "weights.safetensors")
