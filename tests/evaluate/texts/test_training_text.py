"""Windows of training text: none overlaps another, and none is of the text that a model is measured
on."""

import lzma
from pathlib import Path

import numpy as np
import pytest

from fakes.toy_executor import ToyExecutor, ToyTokenizer
from paredown.errors import CheckpointError, ConfigError
from paredown.evaluate.texts.text import DATA_VARIABLE, sample_text
from paredown.evaluate.texts.training_text import TrainingTextConfig, choose_training_text

WORDS = " ".join(f"word{number:05d}" for number in range(4000))


class BosTokenizer(ToyTokenizer):
    bos_token_id = 300


def never() -> ToyExecutor:
    raise AssertionError("the reference model is not needed")


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATA_VARIABLE, raising=False)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    (tmp_path / "book.txt").write_text(WORDS)
    return tmp_path / "book.txt"


@pytest.mark.parametrize("num_tokens", [640, 6_400, 20_000])
def test_windows_do_not_overlap_and_begin_with_the_first_token(num_tokens: int, book: Path) -> None:
    config = TrainingTextConfig(num_tokens=num_tokens, text=book, window_tokens=64)
    found = choose_training_text(config, BosTokenizer(), never, 512)
    assert len(found.windows_NT) == -(-num_tokens // 64)
    assert (found.windows_NT[:, 0] == 300).all()
    places = [WORDS.find(BosTokenizer().decode(one[1:].tolist())) for one in found.windows_NT]
    assert min(places) >= 0
    assert (np.diff(places) >= 63).all()
    assert found.source == f"{len(places):,} windows of 64 tokens of book.txt"


def test_a_short_text_gives_what_it_has(book: Path) -> None:
    config = TrainingTextConfig(num_tokens=10**6, text=book, window_tokens=64)
    found = choose_training_text(config, ToyTokenizer(), never, 32)
    assert found.windows_NT.shape == (len(WORDS) // 32, 32)
    read = ToyTokenizer().decode(found.windows_NT.flatten().tolist())
    assert read == WORDS[: len(read)]


def test_a_text_shorter_than_a_window_is_refused(book: Path) -> None:
    book.write_text("too short")
    config = TrainingTextConfig(num_tokens=100, text=book, window_tokens=64)
    with pytest.raises(ConfigError, match="shorter than one window"):
        choose_training_text(config, ToyTokenizer(), never, 512)
    missing = TrainingTextConfig(num_tokens=100, text=book.with_name("none.txt"))
    with pytest.raises(CheckpointError, match="cannot be read"):
        choose_training_text(missing, ToyTokenizer(), never, 512)


@pytest.mark.parametrize(("num_tokens", "window_tokens"), [(0, 64), (100, 1)])
def test_numbers_that_make_no_window_are_refused(num_tokens: int, window_tokens: int) -> None:
    with pytest.raises(ConfigError, match="no text to train on"):
        TrainingTextConfig(num_tokens=num_tokens, window_tokens=window_tokens)


def test_what_is_sampled_is_not_what_is_measured_on() -> None:
    executor, tokenizer = ToyExecutor(num_pages=64), ToyTokenizer()
    config = TrainingTextConfig(num_tokens=640, window_tokens=64)
    found = choose_training_text(config, tokenizer, lambda: executor, 512)
    assert found.windows_NT.shape == (10, 64)
    measured = np.array(sample_text(executor, tokenizer, 640)).reshape(10, 64)
    assert (found.windows_NT != measured).any(axis=1).all()
    again = choose_training_text(config, tokenizer, lambda: executor, 512)
    assert (again.windows_NT == found.windows_NT).all()


def test_the_data_folder_gives_the_training_split(
    book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "text" / "classic-books"
    folder.mkdir(parents=True)
    (folder / "train.txt.xz").write_bytes(lzma.compress(WORDS.encode()))
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    config = TrainingTextConfig(num_tokens=640, window_tokens=64)
    assert "train.txt.xz" in choose_training_text(config, ToyTokenizer(), never, 512).source
