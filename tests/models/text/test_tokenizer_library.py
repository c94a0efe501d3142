"""The one door to the library: the same answers here and in a process of its own."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.small_tokenizers import byte_level, sentence_piece
from paredown.errors import CheckpointError, RequestError
from paredown.models.text.tokenizer_library import LONG_TEXT_CHARS, AddedToken, TokenizerLibrary

SOURCE = Path(__file__).parent.parent.parent.parent / "src" / "paredown"
# The library's version is told by the proof of a model.
DOORS = {
    "models/text/tokenizer_library.py",
    "models/text/marked_text.py",
    "models/text/tokenizer_program.py",
    "evaluate/verify/verification.py",
}


def libraries() -> list[tuple[TokenizerLibrary, TokenizerLibrary]]:
    found = []
    for made in (byte_level(bos=True), sentence_piece()):
        pair = [TokenizerLibrary.parse(made.to_str().encode(), "t") for _ in range(2)]
        for one in pair:
            one.add_tokens([AddedToken("<|x|>", special=True)], splits_special=False)
        pair[1]._encodes_here = pair[1]._decodes_here = False
        found.append((pair[0], pair[1]))
    return found


PAIRS = libraries()


@settings(
    deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=st.text(st.characters(codec="utf-8"), max_size=30), ids=st.lists(st.integers(0, 300)))
@pytest.mark.parametrize("pair", PAIRS, ids=["bytes", "pieces"])
def test_a_process_of_its_own_gives_the_same(
    pair: tuple[TokenizerLibrary, TokenizerLibrary], text: str, ids: list[int]
) -> None:
    here, apart = pair
    for one in (text, f"{text}<|x|> <s>{text}"):
        assert apart.encode(one) == here.encode(one)
        assert apart.encode_whole(one) == here.encode_whole(one)
    for skips in (True, False):
        assert apart.decode(ids, skip_special_tokens=skips) == here.decode(
            ids, skip_special_tokens=skips
        )


def test_a_long_text_and_special_tokens_that_are_split() -> None:
    here, apart = PAIRS[0]
    text = "abc <s> " * LONG_TEXT_CHARS
    assert apart.encode(text) == here.encode(text)
    made = byte_level().to_str().encode()
    split, other = (TokenizerLibrary.parse(made, "t") for _ in range(2))
    other._encodes_here = False
    for one in (split, other):
        one.add_tokens([], splits_special=True)
        assert len(one.encode("<s>")) == 3


@pytest.mark.parametrize("ids", [[-1], [2**40]])
def test_numbers_that_are_no_ids_are_errors_of_ours(ids: list[int]) -> None:
    for one in PAIRS[0]:
        with pytest.raises(RequestError, match="tokenizer fails"):
            one.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"normalizer": {', b"null"])
def test_what_is_no_tokenizer_is_an_error_of_ours(data: bytes) -> None:
    with pytest.raises(CheckpointError):
        TokenizerLibrary.parse(data, "t")


def test_an_interrupt_is_not_taken_for_a_panic(monkeypatch: pytest.MonkeyPatch) -> None:
    library = TokenizerLibrary.parse(byte_level().to_str().encode(), "t")

    class Interrupted:
        def id_to_token(self, token_id: int) -> str:
            return "a"

        def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr(library, "_library", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        library.decode([1], skip_special_tokens=True)


def test_nobody_else_calls_the_library() -> None:
    imports = re.compile(r"^\s*(import|from) tokenizers\b", re.MULTILINE)
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if imports.search(path.read_text())
    }
    assert found == DOORS


def test_its_parts_are_told_as_the_file_has_them() -> None:
    made = json.loads(sentence_piece().to_str())
    library = TokenizerLibrary.parse(json.dumps(made).encode(), "t")
    assert library.normalizer_description == made["normalizer"]
    assert library.pre_tokenizer_description is None
    assert library.decoder_description == made["decoder"]
    assert library.model_kind == "BPE"
    assert library.has_byte_fallback
