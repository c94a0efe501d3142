"""`paredown eval --task glue-...` on a tiny classifier and small files."""

import json
from pathlib import Path

import numpy as np
import pytest

from fakes.glue_folder import NUM_ROWS, write_classifier, write_encoder, write_sst2, write_stsb
from paredown.cli import main as cli
from paredown.engine.build_encoder import build_encoder
from paredown.evaluate.tasks.glue import find_task
from paredown.evaluate.tasks.glue_file import read_glue_sets
from paredown.evaluate.tasks.glue_texts import glue_texts
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_classifier(folder / "classifier", ("negative", "positive"))
    write_encoder(folder / "encoder")
    return folder


def test_a_classifier_is_scored_beside_its_reference(models, tmp_path, capsys) -> None:
    model, files = models / "classifier", write_sst2(tmp_path)
    words = ["eval", str(model), "--task", "glue-sst2", "--text", str(files)]
    assert cli.main([*words, "--reference", str(model), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["sets"]
    encoder = build_encoder(Checkpoint.open(model), RunOptions())
    (examples,) = read_glue_sets(find_task("glue-sst2"), files)
    by_hand = encoder.executor.encode(glue_texts(encoder.model, examples).texts)
    right = np.mean(by_hand.argmax(1) == examples.labels)
    assert found["model"]["scores"]["accuracy"] == pytest.approx(right)
    assert found["reference"]["scores"] == found["model"]["scores"]
    assert found["model"]["cosine_least"] == pytest.approx(1.0)
    assert cli.main([*words, "--limit", "5"]) == 0
    shown = capsys.readouterr().out
    assert "accuracy" in shown
    assert "5 rows of dev.tsv" in shown
    assert "cosine" not in shown


def test_an_encoder_does_sts_by_cosine(models, tmp_path, capsys) -> None:
    words = ["eval", str(models / "encoder"), "--task", "glue-stsb", "--text"]
    assert cli.main([*words, str(write_stsb(tmp_path)), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["sets"]
    assert set(found["model"]["scores"]) == {"Spearman", "Pearson"}
    assert found["reference"] is None
    assert f"{NUM_ROWS} rows" in found["protocol"]


@pytest.mark.parametrize(
    ("model", "words", "message"),
    [
        ("encoder", ["--task", "glue-sst2"], "cannot do SST-2"),
        ("classifier", ["--task", "glue-sst2", "--kv-dtype", "int8"], "keeps no keys and values"),
        ("classifier", ["--task", "glue-sst2", "--limit", "0"], "nothing to answer"),
        ("classifier", ["--task", "glue-rte"], "not a file of RTE"),
    ],
)
def test_what_does_not_fit_is_refused(models, tmp_path, capsys, model, words, message) -> None:
    files = write_sst2(tmp_path)
    asked = ["eval", str(models / model), "--text", str(files / "dev.tsv"), *words]
    assert cli.main(asked) == cli.EXIT_BAD_INPUT
    assert message in capsys.readouterr().err


def test_a_model_that_predicts_tokens_is_refused(tmp_path, capsys) -> None:
    files = write_sst2(tmp_path)
    assert cli.main(["eval", "--task", "glue-sst2", "--text", str(files)]) == cli.EXIT_BAD_INPUT
    assert "is for encoders" in capsys.readouterr().err


def test_sensitivity_is_measured_on_the_task(models, tmp_path, capsys) -> None:
    words = ["sensitivity", str(models / "classifier"), "--task", "glue-sst2", "--text"]
    words += [str(write_sst2(tmp_path)), "--format", "int4-g32", "--by", "layer", "--batch", "4"]
    words += ["--activations", "--grid", "int8-tensor-asym", "--ranges", "running", "--layers", "2"]
    assert cli.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "batches of at most 4 texts" in found["protocol"]
    assert found["notes"] == ["ranges by running over 3 batches of 4 texts of train.tsv"]
    assert "static ranges by running, layers 2" in found["activations"]["what"]
    assert len(found["activations"]["rows"]) == 13
    assert found["plain"]["scores"]["accuracy"] <= 1
