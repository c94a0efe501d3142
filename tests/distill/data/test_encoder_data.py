"""Data that an encoder learns from: sentences, pairs and labels, each once, and why others are
left out."""

import json
from pathlib import Path

import pytest

from fakes.encoder_folder import write_tokenizer
from paredown.distill.data.encoder_data import EncoderData, encoder_data, read_examples
from paredown.distill.data.training_data import TrainingDataConfig
from paredown.distill.encoder_rows import NO_LABEL
from paredown.errors import CheckpointError, ConfigError
from paredown.models.text.tokenizer import Tokenizer
from paredown.models.text.whole_text import WholeText

LABELS = ("bad", "good")


def read(tmp_path: Path, lines: list[object], held_out: float = 0.0) -> EncoderData:
    path = tmp_path / "data.jsonl"
    path.write_text(
        "".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines)
    )
    return read_paths(tmp_path, path, held_out=held_out)


def read_paths(tmp_path: Path, *paths: Path, held_out: float = 0.0) -> EncoderData:
    write_tokenizer(tmp_path)
    whole = WholeText(tokenizer=Tokenizer.open(tmp_path), max_tokens=16)
    config = TrainingDataConfig(paths=paths, row_tokens=32, held_out=held_out)
    return encoder_data(
        read_examples(paths), config, whole, LABELS, num_tokens=10_000, source="a file"
    )


def test_labels_are_numbers_or_names(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        [
            {"text": "one", "label": 1},
            {"text": "two", "label": "bad"},
            {"text": "three"},
            {"text": "four", "label": "good", "text_pair": "five"},
        ],
    )
    assert found.rows.labels.tolist() == [1, 0, NO_LABEL, 1]
    assert found.notes == ()


def test_what_is_no_example_is_counted(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        [
            {"text": "one", "label": 0},
            {"text": "one", "label": 0},
            {"text": "one", "label": 1},
            {"text": "two", "label": 2},
            {"text": "two", "label": "fair"},
            {"text": "two", "label": True},
            {"text": " "},
            {"text": "two", "text_pair": 3},
            "[]",
            "no json",
        ],
    )
    assert found.rows.labels.tolist() == [0, 1]
    (note,) = found.notes
    for reason in (
        "the same as one before (1)",
        "a label that the model does not have (2)",
        "label is neither a number nor a name (1)",
        "no text (1)",
        "text_pair is no text (1)",
        "no JSON object (1)",
        "no JSON (1)",
    ):
        assert reason in note


def test_a_held_out_text_is_never_trained_on(tmp_path: Path) -> None:
    lines = [{"text": f"text {number}"} for number in range(60)]
    found = read(tmp_path, lines, held_out=0.3)
    assert found.held_out is not None
    assert found.rows.num_texts + found.held_out.num_texts == 60
    assert 5 < found.held_out.num_texts < 35
    turned = read(tmp_path, lines[::-1], held_out=0.3)
    assert turned.held_out is not None
    assert turned.held_out.num_texts == found.held_out.num_texts


def test_text_files_give_their_sentences(tmp_path: Path) -> None:
    (tmp_path / "prose.txt").write_text("It is one two. It is three four.\n\nIt is five six.")
    found = read_paths(tmp_path, tmp_path / "prose.txt")
    assert found.rows.num_texts == 3


def test_nothing_to_learn_from_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to train on"):
        read(tmp_path, ["{}"])
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_paths(tmp_path, tmp_path / "nowhere.txt")
    (tmp_path / "picture.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not text"):
        read_paths(tmp_path, tmp_path / "picture.txt")
