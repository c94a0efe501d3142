"""BERT's tokenizer in GGUF metadata and back: the same ids, around a text and in a pair too."""

import json
from pathlib import Path

import pytest

from fakes.word_tokenizer import NUM_WORDS, write_word_tokenizer
from paredown.errors import UnsupportedError
from paredown.models.gguf.file import write_gguf_file
from paredown.models.gguf.tokenizer import JSON
from paredown.models.gguf.vocabulary import read_vocabulary
from paredown.models.text.tokenizer import Tokenizer

TEXTS = ("a b c", "Hello, World!", "abc def", "über", "", "[MASK] a", "漢字 x", "a" * 150)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_word_tokenizer(tmp_path)
    return tmp_path


@pytest.mark.parametrize("whole", [True, False])
def test_a_word_piece_tokenizer_comes_back(whole: bool, folder: Path) -> None:
    vocabulary = read_vocabulary(folder, NUM_WORDS)
    kept = {key: one for key, one in vocabulary.metadata.items() if whole or key != JSON}
    write_gguf_file(folder / "t.gguf", kept, [], [])
    found, expected = Tokenizer.open(folder / "t.gguf"), Tokenizer.open(folder)
    # Of the parts alone, a word has no greatest length.
    for text in TEXTS if whole else TEXTS[:-1]:
        assert found.encode(text) == expected.encode(text), text
    assert found.prompt_prefix == expected.prompt_prefix == (2,)
    assert found.prompt_suffix == expected.prompt_suffix == (3,)
    assert found.pair_form == expected.pair_form


@pytest.mark.parametrize(
    "changes",
    [
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"normalizer": {"type": "Lowercase"}},
        {"post_processor": None},
    ],
)
def test_other_word_pieces_are_not_written(changes: dict[str, object], folder: Path) -> None:
    library = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**library, **changes}))
    with pytest.raises(UnsupportedError, match="cannot be written as GGUF"):
        read_vocabulary(folder, NUM_WORDS)
