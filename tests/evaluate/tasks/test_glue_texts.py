"""A task meets a model: how its texts are read, and how outputs become scores."""

from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from fakes.glue_folder import (
    NUM_ROWS,
    write_classifier,
    write_encoder,
    write_rte,
    write_sst2,
    write_stsb,
)
from paredown.engine.encode.encoder_model import EncoderModel, encoder_model
from paredown.errors import ConfigError
from paredown.evaluate.metrics.spearman import spearman
from paredown.evaluate.tasks.glue import TASKS, find_task
from paredown.evaluate.tasks.glue_file import read_glue_sets
from paredown.evaluate.tasks.glue_texts import glue_texts, label_numbers
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer


def opened(folder: Path) -> EncoderModel:
    return encoder_model(Checkpoint.open(folder), Tokenizer.open(folder))


@pytest.mark.parametrize(
    ("labels", "task", "expected"),
    [
        (("negative", "positive"), "sst2", (0, 1)),
        (("POSITIVE", "NEGATIVE"), "sst2", (1, 0)),
        (("LABEL_0", "LABEL_1"), "sst2", (0, 1)),
        (("0", "1"), "mrpc", (0, 1)),
        (("contradiction", "entailment", "neutral"), "mnli", (2, 0, 1)),
        (("not-entailment", "entailment"), "rte", (1, 0)),
    ],
)
def test_labels_are_told_by_their_names(
    labels: tuple[str, ...], task: str, expected: tuple[int, ...]
) -> None:
    assert label_numbers(labels, find_task(task)) == expected


@pytest.mark.parametrize(
    "labels", [("negative", "neutral", "positive"), ("LABEL_0",), ("joy", "sadness"), ("0", "good")]
)
def test_labels_of_something_else_are_refused(labels: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="labels are not those of SST-2"):
        label_numbers(labels, find_task("sst2"))


def test_texts_are_read_as_transformers_reads_them(tmp_path: Path) -> None:
    model = write_classifier(tmp_path / "model", ("entailment", "not_entailment"))
    (examples,) = read_glue_sets(find_task("rte"), write_rte(tmp_path / "rte"))
    read = glue_texts(opened(model), examples)
    theirs = AutoTokenizer.from_pretrained(model)
    for text, pair in zip(read.texts, examples.texts, strict=True):
        encoded = theirs(*pair)
        assert list(text.token_ids) == encoded["input_ids"]
        assert list(text.type_ids) == encoded["token_type_ids"]
    assert f"{NUM_ROWS} rows of dev.tsv" in read.protocol


def test_the_largest_number_is_the_label(tmp_path: Path) -> None:
    model = opened(write_classifier(tmp_path / "model", ("positive", "negative")))
    (examples,) = read_glue_sets(find_task("sst2"), write_sst2(tmp_path / "sst2"))
    outputs = np.zeros((NUM_ROWS, 2), np.float32)
    outputs[np.arange(NUM_ROWS), 1 - examples.labels] = 3.0
    assert glue_texts(model, examples).score(outputs) == {"accuracy": 1.0}
    outputs[0] = outputs[0, ::-1]
    assert glue_texts(model, examples).score(outputs) == {"accuracy": 1 - 1 / NUM_ROWS}


def test_vectors_of_pairs_are_compared_by_cosine(tmp_path: Path) -> None:
    model = opened(write_encoder(tmp_path / "model"))
    (examples,) = read_glue_sets(find_task("stsb"), write_stsb(tmp_path / "stsb"))
    task = glue_texts(model, examples)
    assert len(task.texts) == 2 * NUM_ROWS
    outputs = np.random.default_rng(0).normal(size=(2 * NUM_ROWS, 5)).astype(np.float32)
    by_hand = [
        float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
        for a, b in zip(outputs[:NUM_ROWS], outputs[NUM_ROWS:], strict=True)
    ]
    assert task.score(outputs)["Spearman"] == pytest.approx(
        spearman(np.array(by_hand), examples.labels)
    )
    assert list(task.score(outputs)) == ["Spearman", "Pearson"]


def test_a_model_with_one_label_gives_a_number(tmp_path: Path) -> None:
    model = opened(write_classifier(tmp_path / "model", ("score",)))
    (examples,) = read_glue_sets(find_task("stsb"), write_stsb(tmp_path / "stsb"))
    task = glue_texts(model, examples)
    assert len(task.texts) == NUM_ROWS
    outputs = examples.labels.astype(np.float32)[:, None]
    assert task.score(outputs)["Pearson"] == pytest.approx(1.0)


def test_a_model_that_cannot_do_the_task_is_refused(tmp_path: Path) -> None:
    encoder = opened(write_encoder(tmp_path / "encoder"))
    (sst2,) = read_glue_sets(find_task("sst2"), write_sst2(tmp_path / "sst2"))
    with pytest.raises(ConfigError, match="cannot do SST-2"):
        glue_texts(encoder, sst2)
    classifier = opened(write_classifier(tmp_path / "classifier", ("negative", "positive")))
    (stsb,) = read_glue_sets(find_task("stsb"), write_stsb(tmp_path / "stsb"))
    with pytest.raises(ConfigError, match="STS-B asks for a number"):
        glue_texts(classifier, stsb)


def test_every_task_names_its_labels() -> None:
    for task in TASKS.values():
        assert label_numbers(task.label_names, task) == tuple(range(len(task.labels))) or (
            task.is_regression
        )
