"""GET /report: what is known is told, and nothing else is made up."""

import json
from pathlib import Path

import pytest
import torch

from drivers.encoder_server import encoder_server
from drivers.running_server import running_server
from fakes.tiny_models import make_model
from paredown.errors import CheckpointError
from paredown.models.checkpoint import Checkpoint
from paredown.serve import model_report
from paredown.serve.model_report import ModelReport


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("model")
    make_model("llama", torch.bfloat16, 0).save_pretrained(folder)
    return Checkpoint.open(folder)


def test_a_server_tells_what_may_be_asked_of_its_model():
    with running_server() as server:
        found = server.client.get("/report").json()
    assert found == {
        "model": "toy",
        "max_tokens": 256,
        "task": "generate",
        "has_chat_template": True,
        "reads_last_turn": False,
    }
    with encoder_server() as encoder:
        found = encoder.client.get("/report").json()
    assert (found["task"], found["makes"]) == ("embed", "embedding")


def test_the_checkpoint_and_its_figures_come_as_they_are(checkpoint):
    figures = {"recipe": "int8", "compressed": {"perplexity": 9.5}, "notes": ["<b>a note</b>"]}
    report = ModelReport(checkpoint, figures)
    report.check = "verified: the logits, bit for bit"
    with running_server(report=report) as server:
        found = server.client.get("/report").json()
    assert found["verification"] == {"check": report.check, "figures": figures}
    assert found["runs"] is None
    told = found["checkpoint"]
    assert told["family"] == "llama"
    assert told["num_parameters"] == checkpoint.spec.num_parameters()
    assert told["bits_per_weight"] == pytest.approx(8 * told["file_bytes"] / told["num_parameters"])


def test_figures_that_are_too_long_are_refused_when_the_server_starts(checkpoint, monkeypatch):
    monkeypatch.setattr(model_report, "MAX_FIGURES_CHARS", 100)
    figures = {"notes": ["x" * 100]}
    with pytest.raises(CheckpointError, match="too long to be shown") as error:
        ModelReport(checkpoint, figures)
    assert str(len(json.dumps(figures))) in str(error.value)
    assert "--no-verify" in str(error.value)
    assert Path(checkpoint.path, "verification.json").name in str(error.value)
