"""The rotary positions of llama.cpp itself, for every scaling that metadata ask for."""

from pathlib import Path

import numpy as np
import pytest
from parity.test_llama_cpp import executor_of, our_logits

from benchmarks.peers.llama_logits import LlamaLogits
from paredown.compress.convert.gguf_mixture import GGUF_FORMATS
from paredown.compress.convert.write_gguf import write_gguf
from paredown.models.checkpoint import Checkpoint
from paredown.models.gguf.file import read_gguf, write_gguf_file
from paredown.models.gguf.header import NewTensor, Value
from paredown.models.resolve import resolve_model

NUM_TOKENS = 100
SCALINGS: dict[str, dict[str, Value]] = {
    "plain": {},
    "none": {"type": "none", "factor": np.float32(4)},
    "a factor alone": {"factor": np.float32(4)},
    "yarn": {
        "type": "yarn",
        "factor": np.float32(4),
        "original_context_length": np.uint32(64),
    },
    "yarn of the whole context": {"type": "yarn", "factor": np.float32(8)},
    "yarn with a multiplier": {
        "type": "yarn",
        "factor": np.float32(4),
        "original_context_length": np.uint32(64),
        "attn_factor": np.float32(0.8),
    },
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "plain.gguf"
    write_gguf(Checkpoint.open(resolve_model(None)), path, formats=GGUF_FORMATS["gguf-f16"])
    return path


@pytest.mark.parametrize("scaling", list(SCALINGS))
def test_the_logits_are_the_same(scaling: str, plain: Path, tmp_path: Path) -> None:
    path = tmp_path / "scaled.gguf"
    file = read_gguf(plain)
    arch = file.metadata["general.architecture"]
    keys = {f"{arch}.rope.scaling.{key}": value for key, value in SCALINGS[scaling].items()}
    tensors = [
        NewTensor(name=name, block=place.block, shape=place.shape)
        for name, place in file.places.items()
    ]
    rows = [file.rows(name) for name in file.places]
    write_gguf_file(path, {**file.metadata, **keys}, tensors, rows)
    ids = np.random.default_rng(0).integers(10, 1000, NUM_TOKENS).tolist()
    theirs = LlamaLogits(path)
    found = theirs.logits(ids)
    theirs.close()
    ours = our_logits(executor_of(path, "fp32"), ids)
    assert float(np.abs(ours - found).max()) < 0.05
    if scaling not in ("plain", "none"):
        unscaled = our_logits(executor_of(plain, "fp32"), ids)
        assert float(np.abs(unscaled - found).max()) > 0.1
