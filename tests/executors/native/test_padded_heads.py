"""Heads of sizes that are no whole lanes run natively, padded with zeros."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import make_model
from paredown.compress.compress import compress
from paredown.compress.convert.gguf_mixture import GGUF_FORMATS
from paredown.compress.convert.write_gguf import write_gguf
from paredown.errors import UnsupportedError
from paredown.executors.load import load_executor
from paredown.executors.native.memory_plan import plan_memory
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.kernels.padded_heads import pad_heads, with_padded_heads
from paredown.models.checkpoint import Checkpoint
from paredown.models.config import spec_from_config
from paredown.models.decoder.decoder import Decoder
from paredown.spec.kv import KVSpec

SIZES: dict[str, Any] = {
    "vocab_size": 120,
    "hidden_size": 400,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama of 100 columns": SIZES | {"model_type": "llama"},
    "biases": SIZES | {"model_type": "qwen2", "hidden_size": 160},
    "norms of heads": SIZES | {"model_type": "qwen3", "head_dim": 22, "hidden_size": 64},
    "norms over all heads": SIZES | {"model_type": "olmo2", "hidden_size": 160},
    "a part of each turns": SIZES | {"model_type": "phi", "hidden_size": 160},
}
IDS = list(range(5, 75))
PAGES = [3, 1, 4, 0, 2]


def make_folder(path: Path, config: dict[str, Any]) -> Any:
    torch.manual_seed(5)
    theirs = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(**config), attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        for values in theirs.parameters():
            values.normal_(0, 0.12) if values.ndim > 1 else values.normal_(1, 0.3)
    theirs.save_pretrained(path)
    return theirs


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    theirs = make_folder(tmp_path, CONFIGS[name])
    options = RunOptions(num_pages=5, activations="fp32", kv_dtype="fp32")
    executor = load_executor(Checkpoint.open(tmp_path), options)
    with torch.no_grad():
        expected = theirs(torch.tensor([IDS])).logits[0].numpy()
    found = []
    for start, end in ((0, 40), (40, 41), (41, len(IDS))):
        part = SequenceSlice(IDS[start:end], start, PAGES, end - start)
        found.append(executor.step([part]))
    assert np.abs(np.concatenate(found) - expected).max() < 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("recipe", ["int8", "int4-g32"])
def test_codes_are_padded_too(recipe: str, tmp_path: Path) -> None:
    make_folder(tmp_path / "model", CONFIGS["biases"])
    source = Checkpoint.open(tmp_path / "model")
    compress(source, tmp_path / "packed", recipe)
    packed = Checkpoint.open(tmp_path / "packed")
    options = RunOptions(num_pages=5, kv_dtype="fp32")
    logits = load_executor(packed, options).step([SequenceSlice(IDS, 0, PAGES, len(IDS))])
    with torch.no_grad():
        expected = Decoder.from_checkpoint(packed)(torch.tensor([IDS]))[0].numpy()
    difference = np.sqrt(np.mean((logits - expected) ** 2) / np.mean(expected**2))
    assert difference < 0.05


@pytest.mark.parametrize("name", ["gguf-q4_k_m", "gguf-q5_k_s", "gguf-q6_k", "gguf-q4_0"])
def test_blocks_are_padded_as_they_are_stored(name: str, tmp_path: Path) -> None:
    """Rows of queries, keys and values keep their blocks; the output projection is dequantized,
    which is a note, and the plan of memory knows."""
    sizes = {"hidden_size": 256, "intermediate_size": 512, "initializer_range": 0.08}
    make_model("llama", torch.float32, 0, head_dim=24, **sizes).save_pretrained(tmp_path / "model")
    write_byte_tokenizer(tmp_path / "model")
    path = tmp_path / "m.gguf"
    write_gguf(Checkpoint.open(tmp_path / "model"), path, formats=GGUF_FORMATS[name])
    packed = Checkpoint.open(path)
    (note,) = [note for note in packed.notes if "padded" in note]
    assert note.startswith("2 quantized output projections run dequantized")
    assert "heads of 24" in note
    executor = load_executor(packed, RunOptions(num_pages=5, kv_dtype="fp32"))
    logits = executor.step([SequenceSlice(IDS, 0, PAGES, len(IDS))])
    with torch.no_grad():
        expected = Decoder.from_checkpoint(packed)(torch.tensor([IDS]))[0].numpy()
    difference = np.sqrt(np.mean((logits - expected) ** 2) / np.mean(expected**2))
    assert difference < 0.05
    plan = plan_memory(packed, KVSpec(num_pages=5, dtype="fp32"), 1)
    assert executor.weight_bytes == pytest.approx(plan.weight_bytes, rel=0.02)


def test_pages_are_counted_as_they_are_kept() -> None:
    spec = spec_from_config(CONFIGS["llama of 100 columns"])
    padded = with_padded_heads(spec)
    assert {layer.attention.head_dim for layer in padded.layers} == {112}
    rotary = padded.layers[0].attention.rotary
    assert rotary is not None
    assert rotary.rotated_columns(112) == 100
    assert padded.layers[0].attention.score_scale == pytest.approx(0.1, rel=1e-6)
    kv = KVSpec(num_pages=1, dtype="fp32")
    assert kv.page_bytes(padded) * 100 == kv.page_bytes(spec) * 112
    assert with_padded_heads(padded) == padded


@pytest.mark.parametrize("axis", [0, 1])
def test_zeros_stand_behind_each_head(axis: int) -> None:
    values = np.arange(1, 25).reshape(6, 4)
    wide = pad_heads(values, 2, 5, axis=axis)
    assert wide.shape == ((15, 4), (6, 10))[axis]
    kept = [head * 5 + column for head in range((3, 2)[axis]) for column in range(2)]
    assert np.array_equal(wide.take(kept, axis=axis), values)
    assert wide.sum() == values.sum()


def test_layer_norms_of_padded_heads_are_refused() -> None:
    spec = spec_from_config(CONFIGS["norms of heads"])
    layer = spec.layers[0]
    assert layer.norms.q is not None
    centred = replace(layer.norms.q, kind="layer")
    other = replace(layer, norms=replace(layer.norms, q=centred))
    with pytest.raises(UnsupportedError, match="head_dim 22"):
        with_padded_heads(replace(spec, layers=(other,)))
