"""Windows of text that calibration looks at: where they begin, and what is no text to begin in."""

import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.toy_executor import ToyExecutor, ToyTokenizer
from paredown.errors import CheckpointError, ConfigError
from paredown.evaluate.texts import calibration_text
from paredown.evaluate.texts.calibration_text import (
    DATA_TEXT,
    MIXED_TEXT,
    CalibrationConfig,
    choose_calibration,
)
from paredown.evaluate.texts.text import DATA_VARIABLE

WORDS = " ".join(f"word{number:05d}" for number in range(4000))


class BosTokenizer(ToyTokenizer):
    bos_token_id = 300


def never() -> ToyExecutor:
    raise AssertionError("the reference model is not needed")


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATA_VARIABLE, raising=False)


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("books") / "book.txt"
    path.write_text(WORDS)
    return path


@given(
    num_samples=st.integers(1, 6),
    num_tokens=st.integers(2, 60),
    context=st.integers(2, 60),
    seed=st.integers(0, 99),
    has_bos=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_windows_are_stretches_of_the_text_that_begin_at_words(
    book: Path, num_samples: int, num_tokens: int, context: int, seed: int, has_bos: bool
) -> None:
    tokenizer = BosTokenizer() if has_bos else ToyTokenizer()
    config = CalibrationConfig(text=book, num_samples=num_samples, num_tokens=num_tokens, seed=seed)
    found = choose_calibration(config, tokenizer, never, context)
    size = min(num_tokens, context)
    assert found.windows_NT.shape == (num_samples, size)
    whole = tokenizer.encode(WORDS)
    for window in found.windows_NT.tolist():
        if has_bos:
            assert window[0] == 300
        else:
            assert window[0] == tokenizer.encode(" ")[0] or window == whole[:size]
        text = tokenizer.decode(window[has_bos:])
        assert text in WORDS
    assert found.source == f"{num_samples} windows of {size} tokens of book.txt"
    again = choose_calibration(config, tokenizer, never, context)
    assert np.array_equal(again.windows_NT, found.windows_NT)


def test_another_seed_gives_other_windows_all_over_the_text(book: Path) -> None:
    def starts(seed: int) -> list[int]:
        config = CalibrationConfig(text=book, num_samples=40, num_tokens=20, seed=seed)
        windows = choose_calibration(config, ToyTokenizer(), never, 64).windows_NT
        return [WORDS.index(ToyTokenizer().decode(one.tolist())) for one in windows]

    first, second = starts(0), starts(1)
    assert len({*first, *second}) > 70
    assert min(first) < 0.2 * len(WORDS)
    assert max(first) > 0.8 * len(WORDS)


def test_a_text_of_exactly_one_window_will_do(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("exactly so")
    config = CalibrationConfig(text=tmp_path / "short.txt", num_samples=2, num_tokens=10)
    found = choose_calibration(config, ToyTokenizer(), never, 64)
    assert found.windows_NT.tolist() == [ToyTokenizer().encode("exactly so")] * 2
    (tmp_path / "short.txt").write_text("exactly s")
    with pytest.raises(ConfigError, match=r"9 tokens in short\.txt, windows of 10"):
        choose_calibration(config, ToyTokenizer(), never, 64)


def test_a_packed_text_is_unpacked(book: Path, tmp_path: Path) -> None:
    (tmp_path / "book.txt.xz").write_bytes(lzma.compress(WORDS.encode()))
    found = [
        choose_calibration(
            CalibrationConfig(text=path, num_samples=3, num_tokens=9), ToyTokenizer(), never, 64
        )
        for path in (book, tmp_path / "book.txt.xz")
    ]
    assert np.array_equal(found[0].windows_NT, found[1].windows_NT)


def test_books_are_taken_where_they_are_else_the_model_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    config = CalibrationConfig(num_samples=3, num_tokens=8)
    sampled = choose_calibration(config, BosTokenizer(), ToyExecutor, 64)
    assert sampled.source == "3 windows of 8 tokens of text sampled from the model itself"
    assert sampled.windows_NT.shape == (3, 8)
    # Two that begin as any text does, and a conversation.
    assert sampled.windows_NT[:2, 0].tolist() == [300] * 2
    assert sampled.windows_NT[2, :6].tolist() == ToyTokenizer().encode("<user>")
    (tmp_path / DATA_TEXT).parent.mkdir(parents=True)
    (tmp_path / DATA_TEXT).write_bytes(lzma.compress(WORDS.encode()))
    assert "train.txt.xz" in choose_calibration(config, ToyTokenizer(), never, 64).source


def test_models_that_chat_see_mixed_text_and_conversations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    for place, text in ((DATA_TEXT, lzma.compress(WORDS.encode())), (MIXED_TEXT, b"mix " * 4000)):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_bytes(text)
    config = CalibrationConfig(num_samples=8, num_tokens=40)
    found = choose_calibration(config, ToyTokenizer(), never, 64)
    begins = [ToyTokenizer().decode(one.tolist())[:6] for one in found.windows_NT]
    assert [begin == "<user>" for begin in begins] == [False] * 6 + [True] * 2
    assert sum("word" in begin for begin in begins) == 4
    assert f"{MIXED_TEXT.name} as conversations" in found.source
    monkeypatch.setattr(ToyTokenizer, "has_chat_template", False)
    plain = choose_calibration(config, ToyTokenizer(), never, 64)
    assert plain.source == f"8 windows of 40 tokens of {DATA_TEXT.name}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_samples": 0}, "--samples is too small"),
        ({"num_tokens": 1}, "--calibration-tokens is too small"),
        ({"seed": -1}, "--seed is too small"),
        ({"num_samples": (1 << 26) // 64 + 1, "num_tokens": 64}, "more text than"),
    ],
)
def test_senseless_windows_are_refused(changes: dict[str, int], message: str, book: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        choose_calibration(CalibrationConfig(text=book, **changes), ToyTokenizer(), never, 64)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    bad = {"broken.xz": (b"\xfd7zXZ", CheckpointError), "picture.txt": (b"\x89PNG", ConfigError)}
    for name, (data, error) in bad.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(error, match=name):
            choose_calibration(CalibrationConfig(text=tmp_path / name), ToyTokenizer(), never, 64)
    with pytest.raises(CheckpointError, match="nowhere"):
        choose_calibration(CalibrationConfig(text=tmp_path / "nowhere"), ToyTokenizer(), never, 64)


def test_the_end_of_what_is_read_may_cut_a_character(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration_text, "_READ_BYTES", 101)
    (tmp_path / "cafe.txt").write_text("é" * 400)
    config = CalibrationConfig(text=tmp_path / "cafe.txt", num_samples=1, num_tokens=100)
    found = choose_calibration(config, ToyTokenizer(), never, 128)
    assert ToyTokenizer().decode(found.windows_NT[0].tolist()) == "é" * 50


def test_a_short_text_gives_windows_that_begin_at_words_too(tmp_path: Path) -> None:
    """No window begins so late that it would have to be filled with what comes before."""
    text = WORDS[: 60 * 10]
    (tmp_path / "short.txt").write_text(text)
    config = CalibrationConfig(text=tmp_path / "short.txt", num_samples=60, num_tokens=47)
    found = choose_calibration(config, ToyTokenizer(), never, 64)
    begins = {ToyTokenizer().decode(one.tolist())[:5] for one in found.windows_NT}
    assert begins <= {" word", "word0"}
