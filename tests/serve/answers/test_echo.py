"""A prompt's text and its tokens' places in it."""

import pytest

from fakes.small_tokenizers import byte_level, sentence_piece, write_folder
from paredown.models.text.tokenizer import Tokenizer
from paredown.serve.answers.echo import echo


def places(tokenizer, text, token_ids):
    found = echo(tokenizer, text, token_ids, places_tokens=True)
    return [(one.text, one.start) for one in found.places], found.text


def test_control_tokens_of_a_text_are_written_out(tmp_path):
    tokenizer = Tokenizer.open(write_folder(tmp_path, byte_level(bos=True)))
    text = "a<s>b"
    token_ids = [*tokenizer.prompt_prefix, *tokenizer.encode(text)]
    assert places(tokenizer, text, token_ids)[0] == [("", 0), ("a", 0), ("<s>", 1), ("b", 4)]
    # As tokens, all of them are the client's own.
    assert places(tokenizer, None, token_ids) == (
        [("<s>", 0), ("a", 3), ("<s>", 4), ("b", 7)],
        "<s>a<s>b",
    )


def test_a_sentence_piece_prompt_begins_without_its_space(tmp_path):
    tokenizer = Tokenizer.open(write_folder(tmp_path, sentence_piece()))
    token_ids = [*tokenizer.prompt_prefix, *tokenizer.encode("to to")]
    found, _ = places(tokenizer, "to to", token_ids)
    assert found == [("", 0), ("to", 0), (" to", 2)]


@pytest.mark.parametrize("text", ["", "déjà vu", "😀 a😀", "line\nline\t "])
def test_places_of_a_text_add_up_to_it(tmp_path, text):
    tokenizer = Tokenizer.open(write_folder(tmp_path, byte_level()))
    token_ids = tokenizer.encode(text)
    found, told = places(tokenizer, None, token_ids)
    assert told == text
    parts = [one.encode() if isinstance(one, str) else one for one, _ in found]
    assert b"".join(parts).decode() == text
    starts = [start for _, start in found]
    assert starts == sorted(starts)
    assert all(0 <= start <= len(text) for start in starts)


def test_places_are_made_only_where_they_are_told(tmp_path):
    tokenizer = Tokenizer.open(write_folder(tmp_path, byte_level()))
    assert not echo(tokenizer, "a", tokenizer.encode("a"), places_tokens=False).places
