"""Tokenizers in GGUF metadata: the same ids, from tokenizer.json whole and from llama.cpp's parts.
parity/test_llama_cpp.py asks llama.cpp itself."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.gguf_tokenizers import PIECES, TEXTS, write_byte_level, write_sentence_piece
from paredown.compress.convert.write_gguf import write_gguf
from paredown.errors import CheckpointError, UnsupportedError
from paredown.models.checkpoint import Checkpoint
from paredown.models.gguf.file import write_gguf_file
from paredown.models.gguf.header import Value
from paredown.models.gguf.tokenizer import JSON, MERGES, PRE, SCORES, TOKENS, TYPES
from paredown.models.gguf.vocabulary import GGUFVocabulary, read_vocabulary
from paredown.models.gguf.words import LLAMA_CPP_RULES, WORD_RULES
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer


def reopened(path: Path, vocabulary: GGUFVocabulary, *, whole: bool) -> Tokenizer:
    """From a file with, or without, tokenizer.json in it."""
    metadata = {k: v for k, v in vocabulary.metadata.items() if whole or k != JSON}
    write_gguf_file(path, metadata, [], [])
    return Tokenizer.open(path)


def check_same(found: Tokenizer, expected: Tokenizer) -> None:
    for text in TEXTS:
        ids = expected.encode(text)
        assert found.encode(text) == ids
        assert found.decode(ids) == expected.decode(ids)
    assert found.bos_token_id == expected.bos_token_id
    assert found.eos_token_ids >= expected.eos_token_ids
    assert found.add_bos == expected.add_bos
    assert found.vocab_size == expected.vocab_size


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    "pre", [rule.pre for rule in LLAMA_CPP_RULES.values() if rule.difference is None]
)
def test_byte_level_tokenizers_come_back(pre: str, whole: bool, tmp_path: Path) -> None:
    rule = WORD_RULES[pre]
    size = write_byte_level(tmp_path, rule.patterns, rule.ignores_merges)
    vocabulary = read_vocabulary(tmp_path, size)
    assert vocabulary.notes == ("llama.cpp ends a text at '<|end|>' too",)
    found = reopened(tmp_path / "t.gguf", vocabulary, whole=whole)
    check_same(found, Tokenizer.open(tmp_path))
    assert WORD_RULES[str(vocabulary.metadata[PRE])] == rule


@pytest.mark.parametrize("whole", [True, False])
def test_a_tokenizer_without_merges_comes_back(whole: bool, tmp_path: Path) -> None:
    write_byte_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"bos_token_id": 0, "eos_token_id": 0}))
    vocabulary = read_vocabulary(tmp_path, 257)
    assert vocabulary.metadata[MERGES] == []
    found = reopened(tmp_path / "t.gguf", vocabulary, whole=whole)
    check_same(found, Tokenizer.open(tmp_path))
    assert len(found.encode("12 é\n")) == 6


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_sentence_piece_tokenizers_come_back(prefix: bool, whole: bool, tmp_path: Path) -> None:
    size = write_sentence_piece(tmp_path, prefix)
    found = reopened(tmp_path / "t.gguf", read_vocabulary(tmp_path, size), whole=whole)
    check_same(found, Tokenizer.open(tmp_path))


def test_the_packaged_tokenizer_comes_back_and_the_difference_is_said(tmp_path: Path) -> None:
    source = Checkpoint.open(resolve_model(None))
    result = write_gguf(source, tmp_path / "default.gguf")
    assert "a number that follows it" in result.notes[0]
    found, expected = Tokenizer.open(tmp_path / "default.gguf"), Tokenizer.open(source.path)
    check_same(found, expected)
    messages: list[dict[str, object]] = [{"role": "user", "content": "Good evening."}]
    assert found.render_chat(messages) == expected.render_chat(messages)


def test_rows_without_a_token_are_padded(tmp_path: Path) -> None:
    size = write_byte_level(tmp_path, WORD_RULES["qwen2"].patterns, False)
    metadata = read_vocabulary(tmp_path, size + 3).metadata
    assert metadata[TOKENS][-1] == f"[PAD{size + 2}]"
    assert metadata[TYPES][-4:].tolist() == [3, 5, 5, 5]
    with pytest.raises(UnsupportedError, match="more tokens than"):
        read_vocabulary(tmp_path, size - 1)


def test_more_ends_than_gguf_names_are_said(tmp_path: Path) -> None:
    size = write_byte_level(tmp_path, WORD_RULES["qwen2"].patterns, False)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 2, 5]}))
    vocabulary = read_vocabulary(tmp_path, size)
    assert "not written: 5" in vocabulary.notes[0]
    found = reopened(tmp_path / "t.gguf", vocabulary, whole=True)
    assert 5 not in found.eos_token_ids
    assert found.eos_token_ids > {1, 2}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pre_tokenizer": {"type": "Whitespace"}}, "no rule"),
        ({"normalizer": {"type": "Lowercase"}}, "normalizer"),
        ({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}, "neither BPE"),
    ],
)
def test_what_llama_cpp_has_no_like_of_is_refused(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    size = write_byte_level(tmp_path, WORD_RULES["gpt-2"].patterns, False)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | change), "utf-8")
    with pytest.raises(UnsupportedError, match=message):
        read_vocabulary(tmp_path, size)


TINY: dict[str, Value] = {
    "tokenizer.ggml.model": "gpt2",
    PRE: "gpt-2",
    TOKENS: ["a", "b", "ab"],
    TYPES: np.array([1, 1, 1], np.int32),
    MERGES: ["a b"],
}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"tokenizer.ggml.model": "rwkv"}, UnsupportedError, "rwkv"),
        ({"tokenizer.ggml.model": np.uint32(3)}, CheckpointError, "tokenizer.ggml.model"),
        ({PRE: "unheard-of"}, UnsupportedError, "unheard-of"),
        ({TOKENS: ["b", "a", "a"]}, CheckpointError, "twice.*saw: 'a' at 1 and 2"),
        ({TOKENS: []}, CheckpointError, "tokenizer.ggml.tokens"),
        ({TOKENS: np.zeros(3, np.int32)}, CheckpointError, "a list of strings"),
        ({TYPES: np.zeros(2, np.int32)}, CheckpointError, "one number for each token"),
        ({MERGES: np.zeros(0, np.uint8)}, CheckpointError, "merges, a list of strings"),
        ({MERGES: ["a c"]}, CheckpointError, "joins what are not tokens"),
        ({MERGES: ["ab"]}, CheckpointError, "joins what are not tokens"),
        ({"tokenizer.ggml.bos_token_id": np.uint32(3)}, CheckpointError, "an id below 3"),
        ({JSON: "{"}, CheckpointError, "cannot be read"),
        (
            {"tokenizer.ggml.model": "llama", SCORES: np.full(3, np.nan, np.float32)},
            CheckpointError,
            "one number for each token",
        ),
    ],
)
def test_metadata_that_make_no_tokenizer_are_refused(
    change: dict[str, Value], error: type[Exception], message: str, tmp_path: Path
) -> None:
    write_gguf_file(tmp_path / "good.gguf", TINY, [], [])
    assert Tokenizer.open(tmp_path / "good.gguf").encode("aab") == [0, 2]
    write_gguf_file(tmp_path / "bad.gguf", TINY | change, [], [])
    with pytest.raises(error, match=message):
        Tokenizer.open(tmp_path / "bad.gguf")


def test_sentence_piece_merges_follow_the_scores(tmp_path: Path) -> None:
    """The naive loop of llama.cpp: of all neighbours whose union is a token, join those of the
    highest score, the leftmost of equals."""
    size = write_sentence_piece(tmp_path, prefix=True)
    vocabulary = read_vocabulary(tmp_path, size)
    tokens, scores = vocabulary.metadata[TOKENS], vocabulary.metadata[SCORES]
    score_of = dict(zip(tokens, scores.tolist(), strict=True))
    found = reopened(tmp_path / "t.gguf", vocabulary, whole=False)
    for word in PIECES:
        parts = list(("▁" + word).replace(" ", "▁"))
        while True:
            unions = [(score_of.get(a + b, -np.inf), -i) for i, (a, b) in enumerate(pairs(parts))]
            best = max(unions, default=(-np.inf, 0))
            if best[0] <= -1e9:
                break
            parts[-best[1] : -best[1] + 2] = ["".join(parts[-best[1] : -best[1] + 2])]
        assert found.encode(word) == [tokens.index(part) for part in parts]


def pairs(parts: list[str]) -> list[tuple[str, str]]:
    return list(pairwise(parts))


def test_the_library_takes_what_is_rebuilt(tmp_path: Path) -> None:
    """Added tokens match in text."""
    size = write_byte_level(tmp_path, WORD_RULES["llama-bpe"].patterns, True)
    found = reopened(tmp_path / "t.gguf", read_vocabulary(tmp_path, size), whole=False)
    assert found.encode("<|end|>")[0] == found.vocab_size - 1


def test_a_damaged_chat_template_is_no_matter_of_plain_text(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    write_gguf_file(path, TINY | {"tokenizer.chat_template": "{% if %}"}, [], [])
    tokenizer = Tokenizer.open(path)
    assert tokenizer.encode("aab") == [0, 2]
    with pytest.raises(CheckpointError, match="chat template"):
        tokenizer.render_chat([{"role": "user", "content": "a"}])
