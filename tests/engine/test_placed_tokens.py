"""What tokens add to an answer, against its text."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.small_tokenizers import byte_level, sentence_piece, word_piece, write_folder
from paredown.engine.detokenize import make_detokenizer
from paredown.engine.placed_tokens import TokenPlacer, own_text
from paredown.models.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> list[Tokenizer]:
    """The kinds that texts have: bytes, SentencePiece, and one without a table."""
    made = [byte_level(), sentence_piece(), word_piece()]
    folder = tmp_path_factory.mktemp("placed")
    return [Tokenizer.open(write_folder(folder / str(i), one)) for i, one in enumerate(made)]


def placed(tokenizer: Tokenizer, prompt: list[int], ids: list[int]) -> list[tuple[object, int]]:
    placer = TokenPlacer(tokenizer, prompt)
    return [(one.text, one.start) for one in map(placer.place, ids)]


def test_bytes_of_a_character(tokenizers: list[Tokenizer]) -> None:
    ids = [*tokenizers[0].encode("😀!"), 1]
    data = [(bytes([byte]), 0) for byte in "😀".encode()]
    assert placed(tokenizers[0], [66], ids) == [*data, ("!", 1), ("", 2)]
    first = 8  # the token of byte 0
    ids = [7, *(first + byte for byte in "😀".encode()), 6]
    data = [(bytes([byte]), 3) for byte in "😀".encode()]
    assert placed(tokenizers[1], [7], ids) == [(" to", 0), *data, ("to", 4)]


def test_spaces_of_words(tokenizers: list[Tokenizer]) -> None:
    assert placed(tokenizers[1], [7], [7, 6, 7]) == [(" to", 0), ("to", 3), (" to", 5)]
    assert placed(tokenizers[1], [1], [7, 6, 7]) == [("to", 0), ("to", 2), (" to", 4)]
    assert placed(tokenizers[2], [3], [3, 13, 9]) == [(" it", 0), ("ing", 3), (" .", 6)]
    assert placed(tokenizers[1], [1], [3, 6]) == [("", 0), ("to", 0)]
    assert own_text(tokenizers[1], 7) == " to"
    assert own_text(tokenizers[2], 3) == " it"


def test_bytes_that_make_no_character(tokenizers: list[Tokenizer]) -> None:
    first = 8
    cut = [first + byte for byte in b"\xf0\x9f"]
    assert placed(tokenizers[1], [7], [*cut, 6, cut[0], first + 0xFF]) == [
        (b"\xf0", 0),
        (b"\x9f", 0),
        ("to", 2),
        (b"\xf0", 4),
        (b"\xff", 5),
    ]
    byte = tokenizers[0].encode("\U0001f600a")
    assert placed(tokenizers[0], [66], [byte[0], byte[4], byte[1], byte[0], byte[0]]) == [
        (b"\xf0", 0),
        ("a", 1),
        (b"\x9f", 2),
        (b"\xf0", 3),
        (b"\xf0", 4),
    ]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_texts_stand_where_they_are_said_to(
    tokenizers: list[Tokenizer], data: st.DataObject
) -> None:
    kind = data.draw(st.integers(0, 2))
    tokenizer = tokenizers[kind]
    ids = st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=12)
    prompt, answer = data.draw(ids), data.draw(ids)
    detokenizer = make_detokenizer(tokenizer, prompt)
    text = "".join([*map(detokenizer.push, answer), detokenizer.flush()])
    end = 0
    tokens = placed(tokenizer, prompt, answer)
    for own, start in tokens:
        assert start >= end - 1
        if isinstance(own, str):
            assert text[start : start + len(own)] == own
        end = start + len(own) if isinstance(own, str) else start
    whole = b"".join(
        own.encode() if isinstance(own, str) else own
        for own, _ in placed(tokenizer, prompt, answer)
    )
    if "\ufffd" not in text:
        assert whole == text.encode()
