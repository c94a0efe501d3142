"""The types of a mixture's tensors beside those that llama.cpp's own quantizer chooses."""

import ctypes
from collections.abc import Mapping
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
import pytest
import torch

from benchmarks.peers.llama_logits import be_quiet
from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import make_model
from paredown.compress.convert.gguf_mixture import GGUF_FORMATS
from paredown.compress.convert.write_gguf import write_gguf
from paredown.compress.importance import ColumnImportance, Importance
from paredown.models.checkpoint import Checkpoint
from paredown.models.gguf.names import gguf_tensors

MIXTURES = [name for name, formats in GGUF_FORMATS.items() if formats.is_mixture]
SIZES = {"hidden_size": 256, "intermediate_size": 512}
NARROW = {"hidden_size": 288, "head_dim": 64}
# Family, and what its config changes.
SHAPES: dict[str, tuple[str, dict[str, object]]] = {
    "untied": ("llama", {"num_hidden_layers": 24}),
    "tied": ("llama", {"num_hidden_layers": 30, "tie_word_embeddings": True}),
    "few-layers": ("llama", {"num_hidden_layers": 3}),
    "70b": ("llama", {"num_hidden_layers": 80, "num_key_value_heads": 2}),
    "288-columns": ("llama", {"num_hidden_layers": 9, **NARROW}),
    "288-columns-tied": (
        "llama",
        {"num_hidden_layers": 8, "tie_word_embeddings": True, **NARROW},
    ),
    "eight experts": ("mixtral", {"num_hidden_layers": 9, "num_local_experts": 8}),
    "four experts": ("mixtral", {"num_hidden_layers": 9, "num_local_experts": 4}),
    "a shared expert": (
        "qwen2_moe",
        {
            "num_hidden_layers": 9,
            "moe_intermediate_size": 256,
            "shared_expert_intermediate_size": 512,
        },
    ),
    "phi3": ("phi3", {"num_hidden_layers": 11}),
    "gpt-neox": ("gpt_neox", {"num_hidden_layers": 9}),
    "phi": ("phi", {"num_hidden_layers": 9}),
    "olmo2": ("olmo2", {"num_hidden_layers": 9, "tie_word_embeddings": False}),
    "gemma3": (
        "gemma3_text",
        {"num_hidden_layers": 6, "layer_types": None, "query_pre_attn_scalar": 32},
    ),
}


def importance_of(source: Checkpoint) -> Importance:
    """Random numbers for every linear layer."""
    rng = np.random.default_rng(1)
    modules = {
        name.removesuffix(".weight"): ColumnImportance(
            sum_squares_I=rng.lognormal(0, 1.5, tensor.shape[-1]).astype(np.float32), num_rows=1.0
        )
        for tensor in gguf_tensors(source.spec, source.names)
        if tensor.is_linear
        for name in tensor.experts or (tensor.our_name,)
    }
    return Importance(modules=modules, text="random", num_windows=1, num_tokens=1)


def quantize(
    floats: Path, output: Path, file_type: int, importance: Mapping[str, np.ndarray]
) -> None:
    """llama.cpp's own quantizer; `importance` by its names of tensors."""
    be_quiet()
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype, parameters.nthread = file_type, 1
    entries = (llama_cpp.llama_model_imatrix_data * (len(importance) + 1))()
    kept = {name: np.ascontiguousarray(values) for name, values in importance.items()}
    for entry, (name, values) in zip(entries, kept.items(), strict=False):
        entry.name = name.encode()
        entry.data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        entry.size = len(values)
    if importance:
        parameters.imatrix = entries
    status = llama_cpp.llama_model_quantize(
        str(floats).encode(), str(output).encode(), ctypes.byref(parameters)
    )
    assert status == 0


def types(path: Path) -> dict[str, str]:
    return {one.name: one.tensor_type.name for one in gguf.GGUFReader(path).tensors}


@pytest.fixture(scope="module", params=list(SHAPES))
def floats(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A tiny model as a file of floats."""
    folder = tmp_path_factory.mktemp(request.param)
    family, changes = SHAPES[request.param]
    model = make_model(family, torch.float32, 0, **(SIZES | changes))
    model.save_pretrained(folder / "model")
    write_byte_tokenizer(folder / "model")
    source = Checkpoint.open(folder / "model")
    write_gguf(source, folder / "floats.gguf")
    return Checkpoint.open(folder / "model")


@pytest.mark.parametrize("has_importance", [False, True])
@pytest.mark.parametrize("name", MIXTURES)
def test_every_tensor_has_the_type_that_llama_cpp_chooses(
    name: str, has_importance: bool, floats: Checkpoint, tmp_path: Path
) -> None:
    formats = GGUF_FORMATS[name]
    assert formats.file_type is not None
    found = importance_of(floats) if has_importance else None
    write_gguf(floats, tmp_path / "ours.gguf", formats=formats, importance=found)
    theirs = {
        tensor.name: np.concatenate(
            [
                found.modules[name.removesuffix(".weight")].sum_squares_I
                for name in tensor.experts or (tensor.our_name,)
            ]
        )
        for tensor in gguf_tensors(floats.spec, floats.names)
        if found is not None and tensor.is_linear
    }
    path = floats.path.parent / "floats.gguf"
    quantize(path, tmp_path / "theirs.gguf", formats.file_type, theirs)
    assert types(tmp_path / "ours.gguf") == types(tmp_path / "theirs.gguf")
    fields = [gguf.GGUFReader(tmp_path / f"{one}.gguf").fields for one in ("ours", "theirs")]
    mine, other = (one["general.file_type"].contents() for one in fields)
    assert mine == other == formats.file_type
