"""The split does not depend on order or company, and everything left out is told (D13)."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from drivers.tiny_training import random_rows
from fakes.small_tokenizers import byte_level, write_folder
from paredown.distill.data import training_data
from paredown.distill.data.training_data import (
    TrainingData,
    TrainingDataConfig,
    read_training_data,
    split_windows,
)
from paredown.distill.rows import Rows
from paredown.errors import ConfigError
from paredown.models.text.tokenizer import Tokenizer


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    return Tokenizer.open(write_folder(tmp_path / "model", byte_level()))


def write(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def texts(count: int) -> list[str]:
    return [json.dumps({"text": f"This is text {number}."}) for number in range(count)]


def read(
    path: Path, tokenizer: Tokenizer, *, held_out: float = 0.3, num_tokens: int = 10**9
) -> TrainingData:
    config = TrainingDataConfig(paths=(path,), row_tokens=64, held_out=held_out)
    return read_training_data(config, tokenizer, 258, num_tokens)


def contents(rows: Rows | None, tokenizer: Tokenizer) -> set[str]:
    """The texts that the rows hold."""
    if rows is None:
        return set()
    found = set()
    assert rows.texts_NT is not None
    for tokens_T, texts_T in zip(rows.tokens_NT, rows.texts_NT, strict=True):
        for number in np.unique(texts_T):
            found.add(tokenizer.decode(tokens_T[texts_T == number].tolist()))
    return {one for one in found if one}


def test_the_split_depends_on_a_records_content_alone(tokenizer: Tokenizer, tmp_path: Path) -> None:
    lines = texts(60)
    one = read(write(tmp_path / "a.jsonl", lines), tokenizer)
    trained, judged = contents(one.rows, tokenizer), contents(one.held_out, tokenizer)
    assert trained | judged == {f"This is text {number}." for number in range(60)}
    assert not trained & judged
    assert 8 <= len(judged) <= 30
    random.Random(1).shuffle(lines)
    other = read(write(tmp_path / "b.jsonl", lines[:40] + lines[:10]), tokenizer)
    assert contents(other.rows, tokenizer) <= trained
    assert contents(other.held_out, tokenizer) <= judged
    assert any("the same as one before (10)" in note for note in other.notes)


def test_all_of_it_is_trained_on_where_nothing_is_held_out(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    data = read(write(tmp_path / "a.jsonl", texts(20)), tokenizer, held_out=0.0)
    assert data.held_out is None
    assert len(contents(data.rows, tokenizer)) == 20
    assert not data.notes


def test_what_was_left_out_is_told_with_its_reasons(tokenizer: Tokenizer, tmp_path: Path) -> None:
    lines = [*texts(30), "{", "{", '{"text": ""}', json.dumps({"text": "x" * 100})]
    data = read(write(tmp_path / "a.jsonl", lines), tokenizer, held_out=0.001)
    told = "\n".join(data.notes)
    assert "3 records of 34 left out: an empty text (1), no JSON (2)" in told
    assert "1 text longer than a row of 64 tokens cut" in told
    assert "31 texts are too few to hold one out" in told
    assert data.source == "31 texts of a.jsonl, packed in rows of 64 tokens"


def test_no_more_is_read_than_is_needed(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [*texts(500), "{"])
    data = read(path, tokenizer, num_tokens=300)
    assert 300 <= data.rows.is_target_NT.sum() + 30 < 400
    assert any("the rest is not needed" in note for note in data.notes)
    assert not any("left out" in note for note in data.notes)


def test_no_more_is_held_out_than_judges(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_data, "_MAX_HELD_OUT_TOKENS", 40)
    data = read(write(tmp_path / "a.jsonl", texts(200)), tokenizer)
    assert data.held_out is not None
    assert data.held_out.is_target_NT.sum() < 100


@pytest.mark.parametrize("lines", [[], ["{"], ['{"text": ""}'] * 3])
def test_data_with_nothing_to_learn_is_refused(
    lines: list[str], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="nothing to train on") as raised:
        read(write(tmp_path / "a.jsonl", lines), tokenizer)
    assert f"{len(lines)} record" in str(raised.value)


def test_files_are_read_one_after_another(tokenizer: Tokenizer, tmp_path: Path) -> None:
    paths = (write(tmp_path / "a.jsonl", texts(3)), write(tmp_path / "b.txt", ["More of it."]))
    config = TrainingDataConfig(paths=paths, row_tokens=64, held_out=0.0)
    data = read_training_data(config, tokenizer, 258, 10**9)
    assert "More of it.\n" in contents(data.rows, tokenizer)
    assert "of a.jsonl and b.txt" in data.source


def test_windows_are_split_by_their_content() -> None:
    rows = random_rows(200, 16)
    data = split_windows(rows, "windows", 0.2, 10**9)
    assert data.held_out is not None
    assert 20 <= data.held_out.num_rows <= 60
    assert data.held_out.num_rows + data.rows.num_rows == 200
    both = np.concatenate([data.rows.tokens_NT, data.held_out.tokens_NT])
    assert np.array_equal(np.unique(both, axis=0), np.unique(rows.tokens_NT, axis=0))
    shorter = split_windows(rows, "windows", 0.2, 10)
    assert shorter.held_out is not None
    assert shorter.held_out.num_rows == min(data.held_out.num_rows, 1024 // 16)
    few = Rows.from_windows(rows.tokens_NT[:1])
    assert split_windows(few, "windows", 0.999, 10**9).rows.num_rows == 1


@pytest.mark.parametrize(
    "fields", [{"row_tokens": 1}, {"held_out": 1.0}, {"held_out": -0.1}, {"held_out": float("nan")}]
)
def test_numbers_out_of_range_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        TrainingDataConfig(**fields)  # type: ignore[arg-type]
