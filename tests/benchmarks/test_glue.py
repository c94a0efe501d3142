"""The classifier that training begins with, how its data is read, and the rows of the table."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from benchmarks.checkpoints.classifier import write_classifier
from benchmarks.glue.rows import Setting, input_taps, rounded_weights, simulated_rows
from benchmarks.glue.train import training_data
from fakes.glue_folder import NUM_ROWS, write_encoder, write_rte, write_sst2
from paredown.evaluate.tasks.glue import find_task
from paredown.evaluate.tasks.glue_file import read_glue
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.points import INPUT_POINTS
from paredown.optimize.sensitivity_texts import TaskConfig

LABELS = ("entailment", "not_entailment")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("begun")
    write_classifier(write_encoder(folder / "encoder"), folder / "classifier", LABELS, seed=0)
    return folder / "classifier"


def test_transformers_and_we_read_the_classifier_alike(classifier: Path) -> None:
    theirs = AutoModelForSequenceClassification.from_pretrained(classifier, dtype=torch.float32)
    assert theirs.config.id2label == dict(enumerate(LABELS))
    encoded = AutoTokenizer.from_pretrained(classifier)("a b c", "d e", return_tensors="pt")
    ours = Decoder.from_checkpoint(Checkpoint.open(classifier))
    with torch.inference_mode():
        vectors = ours.encode(encoded["input_ids"], encoded["token_type_ids"])
        expected = theirs.eval()(**encoded).logits
        torch.testing.assert_close(ours.apply_head(vectors), expected, rtol=1e-4, atol=1e-5)


def test_the_head_is_the_same_for_each_seed(classifier: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    write_classifier(classifier.parent / "encoder", again, LABELS, seed=0)
    assert (again / "model.safetensors").read_bytes() == (
        classifier / "model.safetensors"
    ).read_bytes()
    assert json.loads((again / "config.json").read_text())["num_labels"] == 2


def test_training_reads_each_pair_with_its_label(classifier: Path, tmp_path: Path) -> None:
    examples = read_glue(find_task("rte"), write_rte(tmp_path) / "train.tsv")
    rows = training_data(Checkpoint.open(classifier), examples).rows
    # Rows that are the same as one before count once.
    known = dict(zip(examples.texts, examples.labels, strict=True))
    assert rows.num_texts <= NUM_ROWS
    assert rows.num_texts >= len(known)
    assert set(rows.labels.tolist()) == {0, 1}
    assert rows.types_NT.max() == 1


def test_the_rows_are_the_four_of_the_paper_and_a_scale_a_token(tmp_path: Path) -> None:
    labels = ("negative", "positive")
    write_classifier(write_encoder(tmp_path / "encoder"), tmp_path / "sst2", labels, seed=0)
    task = TaskConfig(name="glue-sst2", path=write_sst2(tmp_path / "files"), batch_texts=4)
    checkpoint = Checkpoint.open(tmp_path / "sst2")
    setting = Setting(checkpoint=checkpoint, task=task, estimator="running")
    rows, protocol = simulated_rows(setting, lambda done, total: None)
    assert list(rows) == [
        "FP32",
        "W8A32",
        "W32A8, static",
        "W8A8, static",
        "W32A8, token",
        "W8A8, token",
    ]
    assert rows["FP32"].cosine_least == pytest.approx(1.0)
    assert "static ranges by running over 3 batches of 4 texts" in protocol
    assert "batches of at most 4" in protocol
    decoder = Decoder.from_checkpoint(checkpoint)
    assert len(input_taps(decoder)) == len(set(INPUT_POINTS.values())) * decoder.spec.num_layers
    for name, values in rounded_weights(decoder).items():
        scale = decoder.get_parameter(name).abs().max() / 127
        assert float((values - decoder.get_parameter(name)).abs().max()) <= 0.51 * scale, name
