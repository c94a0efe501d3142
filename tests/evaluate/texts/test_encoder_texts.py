"""Texts of encoders are whole: special tokens stand around each, and none is too long."""

from pathlib import Path

import numpy as np
import pytest

from fakes.encoder_folder import CLS, SEP, write_tokenizer
from paredown.errors import CheckpointError, ConfigError
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.evaluate.texts.encoder_texts import (
    MAX_TEXT_TOKENS,
    choose_encoder_calibration,
    choose_encoder_texts,
)
from paredown.models.text.tokenizer import Tokenizer

PROSE = "\n\n".join(
    f"This is sentence number {number} of the text. Here is one more of it!" for number in range(40)
)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    write_tokenizer(tmp_path)
    return Tokenizer.open(tmp_path)


@pytest.fixture(autouse=True)
def without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAREDOWN_DATA", raising=False)


def chosen(path: Path | None, tokenizer: Tokenizer, num_tokens: int = 300):
    return choose_encoder_texts(path, tokenizer, num_tokens, vocab_size=258, max_positions=32)


def test_each_sentence_is_a_text_with_its_special_tokens(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    (tmp_path / "prose.txt").write_text(PROSE)
    found = chosen(tmp_path / "prose.txt", tokenizer)
    assert 300 <= found.num_tokens < 300 + 32
    for text in found.texts:
        assert text.token_ids[0] == CLS
        assert text.token_ids[-1] == SEP
        assert len(text.token_ids) <= 32
    first = tokenizer.encode("This is sentence number 0 of the text.")
    assert found.texts[0].token_ids == [CLS, *first[:30], SEP]
    assert found.source == "prose.txt"


def test_without_a_file_they_are_random_and_always_the_same(tokenizer: Tokenizer) -> None:
    found = chosen(None, tokenizer)
    assert found == chosen(None, tokenizer)
    assert "random" in found.source
    assert len({len(text.token_ids) for text in found.texts}) > 3


def test_what_cannot_be_measured_on_is_told(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("two words\n")
    with pytest.raises(ConfigError, match="no text of several words"):
        chosen(tmp_path / "short.txt", tokenizer)
    with pytest.raises(ConfigError, match="nothing to measure on"):
        chosen(None, tokenizer, num_tokens=0)
    with pytest.raises(CheckpointError, match="cannot be read"):
        chosen(tmp_path / "nowhere.txt", tokenizer)


@pytest.mark.parametrize("has_text", [True, False])
def test_calibration_texts_have_one_length(
    has_text: bool, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    path = None
    if has_text:
        path = tmp_path / "prose.txt"
        path.write_text(PROSE)
    config = CalibrationConfig(text=path, num_samples=5, num_tokens=512)
    found = choose_encoder_calibration(config, tokenizer, vocab_size=258, max_positions=200)
    assert found.windows_NT.shape == (5, MAX_TEXT_TOKENS)
    assert (found.windows_NT[:, 0] == CLS).all()
    assert (found.windows_NT[:, -1] == SEP).all()
    if has_text:
        starts = {tokenizer.decode(row[1:9].tolist())[:4] for row in found.windows_NT}
        assert starts <= {"This", "Here"}
    again = choose_encoder_calibration(config, tokenizer, vocab_size=258, max_positions=200)
    assert np.array_equal(found.windows_NT, again.windows_NT)


def test_a_calibration_text_that_is_too_short_is_refused(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    (tmp_path / "short.txt").write_text("one line of some words\n")
    config = CalibrationConfig(text=tmp_path / "short.txt", num_samples=2, num_tokens=100)
    with pytest.raises(ConfigError, match="shorter than one text"):
        choose_encoder_calibration(config, tokenizer, vocab_size=258, max_positions=200)
