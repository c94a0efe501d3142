"""The grammar library takes each token for what it adds to an answer."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Library

from fakes.small_tokenizers import byte_level, sentence_piece, word_piece, write_folder
from paredown.engine.grammar.vocabulary import Vocabulary
from paredown.errors import UnsupportedError
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer

# No text holds it, and the library marks special tokens by it.
NO_TEXT = b"\xff"


def check(tokenizer: Tokenizer, num_special: int) -> None:
    opened = Vocabulary.of(tokenizer, tokenizer.vocab_size).open()
    assert opened.vocab_size == tokenizer.vocab_size
    assert set(opened.eos_tokens) == tokenizer.eos_token_ids
    texts = tokenizer.token_texts
    assert texts is not None
    special = 0
    for token_id in range(tokenizer.vocab_size):
        text = texts.of(token_id)
        data = text.encode() if isinstance(text, str) else text
        if opened.is_special_token(token_id):
            special += data != NO_TEXT
        else:
            assert opened.decode_bytes([token_id]) == data
    assert special == num_special


@pytest.mark.parametrize(
    ("make", "num_special"), [(sentence_piece, 3), (lambda: byte_level("<|x|>"), 3)]
)
def test_tokens_have_their_own_bytes(
    tmp_path: Path, make: Callable[[], Library], num_special: int
) -> None:
    check(Tokenizer.open(write_folder(tmp_path, make())), num_special)


def test_tokens_of_the_built_in_model_have_their_own_bytes() -> None:
    check(Tokenizer.open(resolve_model(None)), 1)


def test_a_tokenizer_of_words_is_refused(tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(write_folder(tmp_path, word_piece()))
    with pytest.raises(UnsupportedError, match="cannot follow a grammar"):
        Vocabulary.of(tokenizer, tokenizer.vocab_size).open()


def test_a_tokenizer_without_an_end_is_refused(tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(write_folder(tmp_path, byte_level(), names={}))
    with pytest.raises(UnsupportedError, match="no token that ends a text"):
        Vocabulary.of(tokenizer, tokenizer.vocab_size)


def test_an_end_beyond_the_logits_ends_nothing(tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(write_folder(tmp_path, byte_level()))
    assert Vocabulary.of(tokenizer, 500).end_token_ids == (1,)
    with pytest.raises(UnsupportedError, match="no token"):
        Vocabulary.of(tokenizer, 1)


def test_a_vocabulary_crosses_to_the_check(tmp_path: Path) -> None:
    one = Vocabulary.of(Tokenizer.open(write_folder(tmp_path, byte_level())), 300)
    assert Vocabulary.from_bytes(one.to_bytes()) == one
