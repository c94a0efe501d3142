"""A text is cut so that the special tokens around it stay."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.errors import ConfigError
from paredown.models.text.pair_form import PairForm
from paredown.models.text.sentences import sentences
from paredown.models.text.whole_text import WholeText

PAIR = PairForm(before=(1,), between=(2,), after=(2,), types=(0, 0, 0, 1, 1))


@dataclass(frozen=True)
class Letters:
    """Encodes each letter as its number, from 10 on."""

    prompt_prefix: tuple[int, ...] = (1,)
    prompt_suffix: tuple[int, ...] = (2,)
    pair_form: PairForm = PAIR

    def encode(self, text: str) -> list[int]:
        return [10 + ord(letter) for letter in text]


@given(st.text(max_size=20), st.integers(3, 12))
def test_a_text_keeps_its_end(text: str, max_tokens: int) -> None:
    ids = WholeText(tokenizer=Letters(), max_tokens=max_tokens).encode(text)
    own = Letters().encode(text)
    assert ids == [1, *own[: max_tokens - 2], 2]


@given(st.text(max_size=20), st.text(max_size=20), st.integers(5, 24))
def test_the_longer_text_of_a_pair_is_cut(text: str, pair: str, max_tokens: int) -> None:
    ids, types = WholeText(tokenizer=Letters(), max_tokens=max_tokens).encode_pair(text, pair)
    assert len(ids) == len(types) == min(max_tokens, len(text) + len(pair) + 3)
    assert ids[0] == 1
    assert ids[-1] == 2
    assert types == sorted(types)
    num_first, num_second = types.count(0) - 2, types.count(1) - 1
    assert ids[1 : 1 + num_first] == Letters().encode(text)[:num_first]
    if len(text) > num_first and len(pair) > num_second:
        assert abs(num_first - num_second) <= 1


def test_without_room_it_says_so() -> None:
    with pytest.raises(ConfigError, match="no room for a text"):
        WholeText(tokenizer=Letters(), max_tokens=2)
    with pytest.raises(ConfigError, match="no room for a pair"):
        WholeText(tokenizer=Letters(), max_tokens=4).encode_pair("a", "b")


def test_prose_is_split_into_sentences_and_lines_are_texts() -> None:
    prose = (
        "A TITLE\n\nOne sentence ends\nhere now. Another one? It ends so.\n\nThe last of them all"
    )
    assert list(sentences(prose)) == ["One sentence ends here now.", "The last of them all"]
    lines = "the first text. it goes on\nshort\nthe second text here\n"
    assert list(sentences(lines)) == ["the first text. it goes on", "the second text here"]
    assert list(sentences("")) == []
