"""Faults of a tokenizer that llama.cpp passes over with a warning."""

import numpy as np
import pytest

from paredown.models.gguf.header import Value
from paredown.models.gguf.tokenizer_notes import tokenizer_notes

SOUND: dict[str, Value] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "default",
    "tokenizer.ggml.tokens": ["a", "b"],
    "tokenizer.ggml.padding_token_id": np.uint32(1),
}


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"padding_token_id": np.uint32(9)}, "padding_token_id 9 is none of the 2"),
        ({"padding_token_id": np.int32(-1)}, "padding_token_id -1 is none"),
        ({"seperator_token_id": np.uint32(2)}, "seperator_token_id 2 is none"),
        ({"pre": None}, "pre is missing"),
    ],
)
def test_each_fault_is_told(change: dict[str, Value | None], note: str) -> None:
    changed = {f"tokenizer.ggml.{key}": value for key, value in change.items()}
    metadata = {key: value for key, value in {**SOUND, **changed}.items() if value is not None}
    (found,) = tokenizer_notes(metadata)
    assert note in found


def test_nothing_is_told_of_others() -> None:
    assert not list(tokenizer_notes(SOUND))
    silent = {key: value for key, value in SOUND.items() if not key.endswith("pre")}
    assert not list(tokenizer_notes({**silent, "tokenizer.huggingface.json": "{}"}))
    assert not list(tokenizer_notes({**silent, "tokenizer.ggml.model": "llama"}))
    assert not list(tokenizer_notes({}))
