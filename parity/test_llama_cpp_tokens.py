"""The ids of llama.cpp itself, for every rule by which it cuts text into words."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from benchmarks.peers.llama_logits import LlamaLogits
from drivers.shared_data import data_folder, needs_data
from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.gguf_tokenizers import TEXTS, write_byte_level, write_sentence_piece
from paredown.models.gguf.file import read_gguf, write_gguf_file
from paredown.models.gguf.header import Value
from paredown.models.gguf.tokenizer import JSON, PRE
from paredown.models.gguf.vocabulary import read_vocabulary
from paredown.models.gguf.words import WORD_RULES
from paredown.models.text.tokenizer import Tokenizer

FOLDER = "tokenizers/gguf-vocab"
VOCABULARY = "ggml-vocab-gpt-2.gguf"
PIECES = (
    "a", "Zé", "  ", "\n", "\t", "12", "3", "４", "½", "日本", "かな", "한국", "हिन्दी", "ไทย", "🙂",
    "'s", "'LL", "...", "x_y", "$", "ß", "Ä", "е", "\r\n", "\u00a0", "‘", "¡", " the", "The",
    "HTTPServer", "!=", "1234567", "e\u0301", " return x;", "||",
)  # fmt: skip
# A no-break space behind a space is no space to llama.cpp by these rules; by the tokenizers that
# they stand for it is.
WITHOUT_NO_BREAK_SPACE = ("tiny_aya", "cohere2moe", "afmoe")
NUM_LINES = 200
SEED = 1


def lines() -> list[str]:
    """Mixed scripts, digits, spaces and code."""
    draw = random.Random(SEED)
    return ["".join(draw.choices(PIECES, k=draw.randint(1, 20))) for _ in range(NUM_LINES)]


@needs_data(FOLDER)
@pytest.mark.parametrize("pre", list(WORD_RULES))
def test_every_rule_gives_the_same_ids(pre: str, tmp_path: Path) -> None:
    """One vocabulary under each rule, that of GPT-2: it has words to tell the rules apart by."""
    folder = data_folder(FOLDER)
    assert folder is not None
    metadata = read_gguf(folder / VOCABULARY).metadata
    tokenizer = {key: value for key, value in metadata.items() if key.startswith("tokenizer.")}
    texts = [*TEXTS, *lines()]
    if pre in WITHOUT_NO_BREAK_SPACE:
        texts = [text.replace("\u00a0", " ") for text in texts]
    check_tokens(tmp_path / f"{pre}.gguf", tokenizer | {PRE: pre}, texts)


@needs_data(FOLDER)
@pytest.mark.parametrize("name", ["gpt-neox", "llama-spm", "bert-bge", "phi-3", "falcon"])
def test_every_vocabulary_gives_the_same_ids(name: str) -> None:
    folder = data_folder(FOLDER)
    assert folder is not None
    check_same(folder / f"ggml-vocab-{name}.gguf", [*TEXTS, *lines()])


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "qwen2"])
def test_byte_level_tokenizers_that_we_write(pre: str, tmp_path: Path) -> None:
    rule = WORD_RULES[pre]
    size = write_byte_level(tmp_path, rule.patterns, rule.ignores_merges)
    check_tokens(tmp_path / f"{pre}.gguf", read_vocabulary(tmp_path, size).metadata, TEXTS)


def test_a_tokenizer_without_merges_that_we_write(tmp_path: Path) -> None:
    write_byte_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    check_tokens(tmp_path / "bytes.gguf", read_vocabulary(tmp_path, 257).metadata, TEXTS)


@pytest.mark.parametrize("prefix", [True, False])
def test_sentence_piece_tokenizers_that_we_write(prefix: bool, tmp_path: Path) -> None:
    size = write_sentence_piece(tmp_path, prefix)
    check_tokens(tmp_path / "spm.gguf", read_vocabulary(tmp_path, size).metadata, TEXTS)


def check_tokens(path: Path, metadata: Mapping[str, Value], texts: Sequence[str]) -> None:
    """Ours are made of the parts that llama.cpp reads."""
    parts = {key: value for key, value in metadata.items() if key != JSON}
    write_gguf_file(path, {"general.architecture": "llama", **parts}, [], [])
    check_same(path, texts)


def check_same(path: Path, texts: Sequence[str]) -> None:
    ours, theirs = Tokenizer.open(path), LlamaLogits(path, vocab_only=True)
    for text in texts:
        assert ours.encode(text) == theirs.encode(text), text
    theirs.close()
