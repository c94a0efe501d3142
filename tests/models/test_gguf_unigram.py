"""Unigram tokenizers of GGUF files, whose ids llama_cpp gives too where it is installed."""

from pathlib import Path

import numpy as np
import pytest

from paredown.engine.prompt import encode_prompt
from paredown.errors import UnsupportedError
from paredown.models.gguf.file import write_gguf_file
from paredown.models.gguf.header import Value
from paredown.models.text.tokenizer import Tokenizer

TOKENS = ["<pad>", "</s>", "<unk>", "▁", "a", "b", "▁a", "ab", "▁ab", "<think>", "ba", "▁b"]
SCORES = [0, 0, 0, -2, -3, -3.5, -2.5, -3.2, -4.5, 0, -3.9, -4]
TYPES = [3, 3, 2, 1, 1, 1, 1, 1, 1, 4, 1, 1]
TEXTS = [
    "ab",
    "aab ba",
    " a\n  b ",
    "  a  b ",
    " ",
    "",
    "bab<think>ab",
    "a ß b",
    "abababa",
    "<think> a",
    "a  ",
]


def write(path: Path, **more: Value) -> Path:
    metadata: dict[str, Value] = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.scores": np.array(SCORES, np.float32),
        "tokenizer.ggml.token_type": np.array(TYPES, np.int32),
    }
    metadata |= {f"tokenizer.ggml.{key}": value for key, value in more.items()}
    write_gguf_file(path, metadata, [], [])
    return path


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("removes", [True, False])
def test_the_ids_are_those_of_llama_cpp(prefix: bool, removes: bool, tmp_path: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    path = write(tmp_path / "t.gguf", add_space_prefix=prefix, remove_extra_whitespaces=removes)
    ours = Tokenizer.open(path)
    theirs = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    for text in TEXTS:
        expected = theirs.tokenize(text.encode(), add_bos=False, special=True)
        assert ours.encode(text) == expected, text
    theirs.close()


def test_the_best_cut_is_taken(tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(write(tmp_path / "t.gguf"))
    assert tokenizer.encode("ab") == [8]
    assert tokenizer.encode("aab<think>") == [6, 7, 9]
    assert encode_prompt(tokenizer, "ab")[0] == 8
    assert tokenizer.eos_token_ids == {1}


def test_a_table_of_characters_is_refused(tmp_path: Path) -> None:
    charsmap = np.zeros(8, np.uint8)
    with pytest.raises(UnsupportedError, match="precompiled_charsmap"):
        Tokenizer.open(write(tmp_path / "t.gguf", precompiled_charsmap=charsmap))
