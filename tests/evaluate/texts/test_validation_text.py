"""Which text choices are made on."""

from pathlib import Path

import pytest
import torch

from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import MAX_POSITIONS, make_model
from paredown.errors import ConfigError
from paredown.evaluate.texts.validation_text import choose_validation_text
from paredown.models.checkpoint import Checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkpoint:
    monkeypatch.setenv("PAREDOWN_DATA", str(tmp_path / "data"))
    make_model("llama", torch.bfloat16, 0).save_pretrained(tmp_path / "in")
    write_byte_tokenizer(tmp_path / "in")
    return Checkpoint.open(tmp_path / "in")


def _write_books(tmp_path: Path) -> None:
    books = tmp_path / "data" / "text" / "classic-books"
    books.mkdir(parents=True)
    (books / "test.txt").write_text("the split that quality is told on " * 9)
    (books / "valid.txt").write_text("the split that choices are made on " * 9)


def test_the_validation_split_is_taken_where_it_is(checkpoint: Checkpoint, tmp_path: Path) -> None:
    _write_books(tmp_path)
    text = choose_validation_text(checkpoint, None, 100, 32)
    assert (text.source, text.window_tokens, text.num_tokens) == ("valid.txt", 32, 100)


def test_a_given_text_goes_before_it(checkpoint: Checkpoint, tmp_path: Path) -> None:
    _write_books(tmp_path)
    (tmp_path / "own.txt").write_text("a text of one's own " * 9)
    assert choose_validation_text(checkpoint, tmp_path / "own.txt", 100, 32).source == "own.txt"


def test_without_books_the_model_writes_one(checkpoint: Checkpoint) -> None:
    text = choose_validation_text(checkpoint, None, 150, 512)
    assert "sampled" in text.source
    assert (text.num_tokens, text.window_tokens) == (150, MAX_POSITIONS)


def test_no_tokens_are_refused(checkpoint: Checkpoint) -> None:
    with pytest.raises(ConfigError, match="at least one"):
        choose_validation_text(checkpoint, None, 0, 32)
