"""Calibration windows of encoder-decoders."""

import pytest

from fakes.t5_tokenizer import write_t5_tokenizer
from fakes.tiny_t5 import VOCAB_SIZE, make_t5, write_t5
from paredown.errors import ConfigError
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.evaluate.texts.continued_calibration import choose_continued_calibration
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer


def test_a_window_without_room_for_both_halves_names_its_option(tmp_path) -> None:
    write_t5(make_t5("gated-untied"), tmp_path)
    write_t5_tokenizer(tmp_path, VOCAB_SIZE)
    (tmp_path / "text.txt").write_text("one two three four five six seven eight nine ten " * 20)
    spec, tokenizer = Checkpoint.open(tmp_path).spec, Tokenizer.open(tmp_path)

    def choose(num_tokens: int):
        config = CalibrationConfig(text=tmp_path / "text.txt", num_samples=2, num_tokens=num_tokens)
        return choose_continued_calibration(config, tokenizer, pytest.fail, spec)

    with pytest.raises(ConfigError, match=r"one half.*windows of 2 tokens.*--calibration-tokens"):
        choose(2)
    made = choose(8)
    assert made.windows_NT.shape == made.answers_NT.shape == (2, 4)
