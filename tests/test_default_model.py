"""The models that come with the package: their folders, sizes, tokenizer, card and quality."""

import json
import math
import re
from pathlib import Path

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from tokenizers import Tokenizer

from paredown.models.resolve import resolve_model

NAMES = ("default", "draft")
MAX_BYTES = 28_000_000
# The opening of the Declaration of Independence of the United States (public domain).
PROSE = (
    "When in the course of human events, it becomes necessary for one people to dissolve the "
    "political bands which have connected them with another, a decent respect to the opinions of "
    "mankind requires that they should declare the causes which impel them to the separation."
)


def tokenizer_of(name: str) -> Tokenizer:
    return Tokenizer.from_file(str(resolve_model(name) / "tokenizer.json"))


def bits_per_byte(folder: Path, text: str) -> float:
    """Bits per byte that Transformers finds for a short `text` after the opening token."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    assert ids[0, 0] == tokenizer.bos_token_id
    with torch.inference_mode():
        loss = model(ids, labels=ids).loss.item()
    return float(loss * (ids.shape[1] - 1) / math.log(2) / len(text.encode()))


def test_both_models_together_are_small() -> None:
    files = [path for name in NAMES for path in resolve_model(name).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MAX_BYTES


@pytest.mark.parametrize(
    ("name", "hidden", "layers", "parameters"),
    [("default", 384, 5, 10_276_992), ("draft", 128, 2, 1_344_128)],
)
def test_config_and_tensors_agree(name: str, hidden: int, layers: int, parameters: int) -> None:
    folder = resolve_model(name)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["hidden_size"], config["num_hidden_layers"]) == (hidden, layers)
    assert config["tie_word_embeddings"] is True
    assert config["max_position_embeddings"] == 2048
    with safe_open(folder / "model.safetensors", framework="numpy") as tensors:
        assert tensors.metadata() == {"format": "pt"}
        slices = {key: tensors.get_slice(key) for key in tensors.keys()}  # noqa: SIM118
        assert "lm_head.weight" not in slices
        assert {view.get_dtype() for view in slices.values()} == {"BF16"}
        assert sum(math.prod(view.get_shape()) for view in slices.values()) == parameters
        for key, view in slices.items():
            if "proj" in key:
                assert view.get_shape()[1] % 128 == 0, key


@pytest.mark.parametrize("name", NAMES)
def test_tokenizer_has_8192_entries_and_a_plain_chat_template(name: str) -> None:
    tokenizer = tokenizer_of(name)
    assert tokenizer.get_vocab_size() == 8192
    config = json.loads((resolve_model(name) / "tokenizer_config.json").read_text("utf-8"))
    assert config["bos_token"] == config["eos_token"] == "<|endoftext|>"
    assert config["model_max_length"] == 2048
    assert "message['content']" in config["chat_template"]
    assert tokenizer.encode("Hello").ids[0] == tokenizer.token_to_id("<|endoftext|>")


def test_models_share_one_tokenizer() -> None:
    one, other = (resolve_model(name) / "tokenizer.json" for name in NAMES)
    assert one.read_bytes() == other.read_bytes()


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_tokenizer_gives_back_any_text(text: str) -> None:
    tokenizer = tokenizer_of("default")
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("name", NAMES)
def test_card_states_data_training_and_held_out_quality(name: str) -> None:
    card = (resolve_model(name) / "README.md").read_text("utf-8")
    for split in ("valid", "test"):
        assert re.search(rf"^\| {split} \| \d\.\d{{4}} \|", card, re.MULTILINE), split
    for phrase in ("public-domain", "steps", "million tokens", "Apache-2.0", "Limits"):
        assert phrase in card


@pytest.mark.parametrize(("name", "limit"), [("default", 1.8), ("draft", 2.4)])
def test_transformers_finds_prose_likely(name: str, limit: float) -> None:
    assert bits_per_byte(resolve_model(name), PROSE) < limit
