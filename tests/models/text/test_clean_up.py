"""Spaces before punctuation: Transformers' rule, whole and in pieces."""

from hypothesis import example, given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from paredown.models.text.clean_up import TextCleaner, clean_up

PIECES = st.sampled_from([" ", "  ", "'", ".", ",", "n", "t", "s", "m", "ve", "re", "!", "?", "x"])


@given(st.lists(PIECES, max_size=30))
@example(["it", " ", "'", " ", "s", " ", "n", " ", "'", " ", "t", " ", "x"])
def test_in_pieces_as_whole(pieces: list[str]) -> None:
    text = "".join(pieces)
    expected = PreTrainedTokenizerBase.clean_up_tokenization(None, text)  # type: ignore[arg-type]
    assert clean_up(text) == expected
    cleaner = TextCleaner()
    given_out = [cleaner.push(piece) for piece in pieces]
    assert "".join([*given_out, cleaner.flush()]) == expected


def test_words_are_given_out_as_they_come() -> None:
    cleaner = TextCleaner()
    assert [cleaner.push(word) for word in ("one", " two", " three", " .")] == [
        "",
        "one",
        " two",
        " three",
    ]
    assert cleaner.flush() == "."
