"""Which text quality is measured on."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.toy_executor import ToyExecutor, ToyTokenizer, reference_logits, toy_spec
from paredown.errors import CheckpointError, ConfigError
from paredown.evaluate.texts.text import (
    choose_text,
    read_text,
    sample_text,
    sampling_pages,
    window_tokens,
)


def never() -> ToyExecutor:
    raise AssertionError("the reference model is not needed")


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAREDOWN_DATA", raising=False)


def test_a_given_file_is_read_up_to_the_tokens_wanted(tmp_path: Path) -> None:
    path = tmp_path / "novel.txt"
    path.write_text("call me Ishmael " * 1000)
    text = choose_text(path, ToyTokenizer(), 100, never, 64)
    assert text.num_tokens == 99
    assert text.source == "novel.txt"
    assert text.window_tokens == 64
    assert "99 tokens" in text.protocol
    assert "novel.txt" in text.protocol


def test_the_classic_books_are_taken_where_they_are(tmp_path: Path, monkeypatch) -> None:
    books = tmp_path / "text" / "classic-books"
    books.mkdir(parents=True)
    (books / "test.txt").write_text("it was the best of times " * 100)
    monkeypatch.setenv("PAREDOWN_DATA", str(tmp_path))
    assert choose_text(None, ToyTokenizer(), 50, never, 64).source == "test.txt"


def test_without_a_text_the_reference_samples_one(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PAREDOWN_DATA", str(tmp_path))
    text = choose_text(None, ToyTokenizer(), 500, ToyExecutor, 256)
    assert "sampled from the reference model" in text.protocol
    assert text.num_tokens == 499
    again = choose_text(None, ToyTokenizer(), 500, ToyExecutor, 256)
    assert again.windows == text.windows


def test_sampled_text_is_likely_under_the_model() -> None:
    ids = sample_text(ToyExecutor(num_pages=64), ToyTokenizer(), 700)
    assert len(ids) == 700
    assert len(set(ids)) > 50


@pytest.mark.parametrize("content", [b"", b"a"])
def test_too_little_text_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "empty.txt").write_bytes(content)
    with pytest.raises(ConfigError, match="no text"):
        choose_text(tmp_path / "empty.txt", ToyTokenizer(), 100, never, 64)


@pytest.mark.parametrize("num_tokens", [0, -5, -(10**30)])
@pytest.mark.parametrize("given", [False, True])
def test_fewer_than_one_token_is_refused(tmp_path: Path, num_tokens: int, given: bool) -> None:
    path = tmp_path / "novel.txt"
    path.write_text("call me Ishmael " * 10)
    with pytest.raises(ConfigError, match="at least one"):
        choose_text(path if given else None, ToyTokenizer(), num_tokens, never, 64)


@pytest.mark.parametrize("num_tokens", [10**11, 10**30])
def test_more_tokens_than_there_are_take_the_whole_file(tmp_path: Path, num_tokens: int) -> None:
    path = tmp_path / "novel.txt"
    path.write_text("call me Ishmael " * 100)
    text = choose_text(path, ToyTokenizer(), num_tokens, never, 64)
    assert text.num_tokens == len(ToyTokenizer().encode(path.read_text())) - 1


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n" * 9, "ends within é".encode()[:-1]])
def test_a_file_that_is_not_text_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "picture.png").write_bytes(content)
    with pytest.raises(ConfigError, match=r"picture\.png is not text"):
        choose_text(tmp_path / "picture.png", ToyTokenizer(), 100, never, 64)


def test_the_cut_may_go_through_a_character(tmp_path: Path) -> None:
    (tmp_path / "cafe.txt").write_text("x" + "é" * 1000, "utf-8")
    assert choose_text(tmp_path / "cafe.txt", ToyTokenizer(), 10, never, 64).num_tokens == 9


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere\.txt"):
        choose_text(tmp_path / "nowhere.txt", ToyTokenizer(), 100, never, 64)


def test_windows_are_the_context_up_to_a_limit() -> None:
    assert window_tokens(toy_spec().max_positions) == 256
    assert window_tokens(131072) == 2048


@given(st.integers(1, 400), st.integers(2, 30), st.booleans())
@settings(max_examples=30, deadline=None)
def test_a_sample_has_so_many_tokens_each_likely_after_the_ones_before(
    num_tokens: int, num_pages: int, has_bos: bool
) -> None:
    """Several texts, one after another: each token is one that the model gives after its own."""

    class Tokenizer(ToyTokenizer):
        bos_token_id = 300 if has_bos else None

    spec = toy_spec(max_positions=32)
    executor = ToyExecutor(spec=spec, num_pages=num_pages)
    ids = sample_text(executor, Tokenizer(), num_tokens)
    assert len(ids) == num_tokens
    num_texts = max(1, min(num_pages // 2, 8))
    length = min(-(-num_tokens // num_texts), 31)
    unlikely = 0
    for at, token in enumerate(ids):
        before = [300 if has_bos else 0, *ids[at - at % length : at]]
        unlikely += reference_logits(before, 512)[token] <= -4
    assert unlikely <= 0.2 * num_tokens + 8, "one of 16 is none of the likely eight"


@pytest.mark.parametrize(("max_positions", "pages"), [(16, 8), (17, 16), (100_000, 8 * 128)])
def test_pages_hold_all_texts_that_are_sampled_side_by_side(max_positions: int, pages: int) -> None:
    assert sampling_pages(toy_spec(max_positions=max_positions)) == pages


@given(st.text(max_size=40), st.integers(0, 200))
def test_a_text_is_cut_after_whole_characters(
    tmp_path_factory: pytest.TempPathFactory, text: str, max_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("texts") / "text.txt"
    path.write_bytes(text.encode())
    assert read_text(path) == text
    cut = read_text(path, max_bytes)
    assert text.startswith(cut)
    assert len(cut.encode()) <= max_bytes
    rest = text[len(cut) :]
    assert not rest or len((cut + rest[0]).encode()) > max_bytes
