"""Models of a hub by their names, from the command line and in Python."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from fakes.hub import COMMIT, FakeHub, Fault, Repository, running_hub
from paredown.cli.main import main
from paredown.engine.llm import LLM
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.jobs.compress import compress_and_verify
from paredown.jobs.convert import convert_and_carry
from paredown.jobs.verify_config import VerifyConfig
from paredown.models.resolve import resolve_model

GREEDY = SamplingParams(temperature=0, max_tokens=8)
SOURCE = {"repository": "org/draft", "commit": COMMIT}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    files = {one.name: one.read_bytes() for one in resolve_model("draft").iterdir()}
    with running_hub() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.chdir(tmp_path)
        hub.repositories["org/draft"] = Repository(files=files)
        yield hub


def test_a_proof_names_the_repository_and_the_commit(hub: FakeHub, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Once upon a time there was a little girl. " * 20)
    measured = VerifyConfig(text=text, num_tokens=100)
    made = compress_and_verify("org/draft", tmp_path / "small", "int8", verify=measured)
    assert made.verification is not None
    proof = json.loads((tmp_path / "small" / "verification.json").read_text())
    assert proof["hub"] == SOURCE
    assert proof["original"]["name"] == "draft"
    # A folder of the hub that has a proof is checked against it, and the proof goes on with it.
    files = {one.name: one.read_bytes() for one in (tmp_path / "small").iterdir()}
    hub.repositories["org/small"] = Repository(files=files)
    convert_and_carry("org/small@main", tmp_path / "gptq", "gptq")
    proof = json.loads((tmp_path / "gptq" / "verification.json").read_text())
    assert proof["converted"]["source"] == "small"
    assert proof["converted"]["hub"] == {"repository": "org/small", "commit": COMMIT}


def test_a_model_and_its_draft_model_answer_as_those_of_folders(hub: FakeHub) -> None:
    expected = LLM("draft").generate("Once upon", GREEDY)
    drafts = SpeculationConfig(kind="draft", draft_model="org/draft")
    found = LLM("org/draft", speculation=drafts).generate("Once upon", GREEDY)
    assert found[0].token_ids == expected[0].token_ids


def test_the_verbs_take_names_of_the_hub(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "org/draft", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"]["hidden_size"] == 128
    assert main(["inspect", "org/none"]) == 2
    assert "no such model on the hub: org/none" in capsys.readouterr().err


def test_the_environment_says_where_the_hub_and_its_cache_are(hub: FakeHub, tmp_path: Path) -> None:
    environment = os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")}
    environment["HF_HUB_OFFLINE"] = "0"
    words = [sys.executable, "-m", "paredown.cli.main", "inspect", "org/draft", "--json"]

    def run(**others: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, env=environment | others, capture_output=True, text=True, timeout=60
        )

    assert json.loads(run().stdout)["model"]["hidden_size"] == 128
    hub.faults.append(Fault(path=".", status=500))
    hub.requests.clear()
    assert json.loads(run(HF_HUB_OFFLINE="1").stdout)["model"]["hidden_size"] == 128
    assert hub.requests == []
    answer = run()
    assert answer.returncode == 0
    assert COMMIT in answer.stderr
