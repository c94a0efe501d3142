"""The text models of folders that also see images, beside Transformers; images are left out."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    Gemma3Config,
    Mistral3Config,
)

from fakes.tiny_models import MINISTRAL3_ROPE
from paredown.compress.compress import compress
from paredown.errors import CheckpointError, UnsupportedError
from paredown.executors.load import load_executor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint
from paredown.models.config_alone import read_config_alone

NOTE = "images are not seen here: the text model runs alone"
TEXT: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
VISION: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
IDS = list(range(3, 30))


def config_of(kind: str) -> Any:
    if kind == "gemma3":
        text = TEXT | {"sliding_window": 7, "query_pre_attn_scalar": 24}
        return Gemma3Config(text_config=text, vision_config=VISION, mm_tokens_per_image=4)
    text = TEXT | {"model_type": "ministral3", "rope_parameters": dict(MINISTRAL3_ROPE)}
    vision = VISION | {"model_type": "pixtral", "head_dim": 16}
    return Mistral3Config(text_config=text, vision_config=vision, tie_word_embeddings=False)


def write(folder: Path, kind: str) -> torch.nn.Module:
    torch.manual_seed(5)
    model = AutoModelForImageTextToText.from_config(config_of(kind), attn_implementation="eager")
    model = model.to(torch.float32).eval()
    with torch.no_grad():
        for values in model.parameters():
            values.normal_(0, 0.15) if values.ndim > 1 else values.normal_(1, 0.3)
    model.save_pretrained(folder)
    return model


def logits_of(folder: Path, name: Any) -> torch.Tensor:
    options = RunOptions(executor=name, num_pages=8, activations="fp32", kv_dtype="fp32")
    executor = load_executor(Checkpoint.open(folder), options)
    return torch.from_numpy(executor.step([SequenceSlice(IDS, 0, list(range(8)), len(IDS))]))


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["native", "torch"])
@pytest.mark.parametrize("kind", ["gemma3", "mistral3"])
def test_logits_are_those_of_transformers(kind: str, name: str, tmp_path: Path) -> None:
    theirs = write(tmp_path, kind)
    checkpoint = Checkpoint.open(tmp_path)
    assert NOTE in checkpoint.notes
    assert not any("vision" in one or "language" in one for one in checkpoint.tensors)
    with torch.no_grad():
        expected = theirs(torch.tensor([IDS])).logits[0]
    close(logits_of(tmp_path, name), expected)


def test_names_in_the_other_order(tmp_path: Path) -> None:
    write(tmp_path, "gemma3")
    expected = logits_of(tmp_path, "torch")
    path = tmp_path / "model.safetensors"
    swapped = {
        "model." + name.replace("language_model.model.", "language_model."): one
        for name, one in load_file(path).items()
    }
    save_file(swapped, path, metadata={"format": "pt"})
    close(logits_of(tmp_path, "torch"), expected)


@pytest.mark.parametrize("kind", ["gemma3", "mistral3"])
def test_what_is_written_is_a_model_of_text_alone(kind: str, tmp_path: Path) -> None:
    write(tmp_path / "whole", kind)
    compress(Checkpoint.open(tmp_path / "whole"), tmp_path / "text", "int8")
    text = Checkpoint.open(tmp_path / "text")
    assert NOTE not in text.notes
    assert text.spec == Checkpoint.open(tmp_path / "whole").spec
    config = json.loads((tmp_path / "text" / "config.json").read_text())
    assert "vision_config" not in config
    assert config["architectures"][0].endswith("ForCausalLM")


def test_the_text_alone_is_what_transformers_loads_as_such(tmp_path: Path) -> None:
    write(tmp_path / "whole", "gemma3")
    checkpoint = Checkpoint.open(tmp_path / "whole")
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(checkpoint.config))
    tensors = {name: torch.from_numpy(one.array.copy()) for name, one in checkpoint.tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    theirs, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    with torch.no_grad():
        close(logits_of(folder, "torch"), theirs(torch.tensor([IDS])).logits[0])


def test_a_config_alone_is_that_of_its_text(tmp_path: Path) -> None:
    """As published: most fields are left to their defaults."""
    file = tmp_path / "config.json"
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    text |= {"rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}
    file.write_text(json.dumps({"model_type": "gemma3", "text_config": text, "vision_config": {}}))
    alone = read_config_alone(file)
    assert NOTE in alone.notes
    assert alone.spec.family == "gemma3_text"
    assert alone.spec.hidden_size == 2560
    assert alone.spec.vocab_size == 262_208
    assert alone.spec.is_tied


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"text_config": 3}, CheckpointError, "'text_config'"),
        ({"text_config": {}}, CheckpointError, "'num_hidden_layers'"),
        ({"text_config": {"model_type": "mamba"}}, UnsupportedError, "mamba"),
        ({"text_config": {**TEXT, "clip_qkv": 8}}, UnsupportedError, "clip_qkv"),
    ],
)
def test_parts_that_are_no_models_are_named(
    changes: dict[str, object], error: type[Exception], words: str, tmp_path: Path
) -> None:
    write(tmp_path, "gemma3")
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    with pytest.raises(error, match=words):
        Checkpoint.open(tmp_path)


def test_a_tensor_of_neither_part_is_named(tmp_path: Path) -> None:
    write(tmp_path, "gemma3")
    path = tmp_path / "model.safetensors"
    save_file(load_file(path) | {"audio_tower.x": torch.zeros(2)}, path, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"audio_tower\.x"):
        Checkpoint.open(tmp_path)
