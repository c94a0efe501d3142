"""`paredown mixed`: the recipe it writes fits the budget and can be run."""

import json
from pathlib import Path

import pytest
import torch

from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import make_model
from paredown.cli.main import main

WIDE = {"hidden_size": 128, "intermediate_size": 256}
OPTIONS = ["--tokens", "64", "--json"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    make_model("llama", torch.bfloat16, 0, initializer_range=0.08, **WIDE).save_pretrained(
        tmp_path / "in"
    )
    write_byte_tokenizer(tmp_path / "in")
    return tmp_path / "in"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("All happy families are alike; every unhappy family is unhappy. " * 9)
    return path


@pytest.mark.parametrize("head", [[], ["--head"]])
def test_the_recipe_runs(
    model: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], head: list[str]
) -> None:
    recipe, out = tmp_path / "mixed.yaml", tmp_path / "out"
    words = ["mixed", str(model), "-o", str(recipe), "--text", str(text), *OPTIONS, *head]
    assert main([*words, "--average-bits", "3.5", "--method", "rtn"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert 3 < result["average_bits"] <= 3.5
    assert len(set(result["formats"].values())) > 1
    assert ("output layer" in result["formats"]) == bool(head)
    assert main([*words]) == 2
    words = ["compress", str(model), "-o", str(out), "--recipe", str(recipe), "--no-verify"]
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    schemes = json.loads(capsys.readouterr().out)["schemes"]
    written = {row["format"] for row in schemes if row["method"]}
    assert written == set(result["formats"].values())


def test_bytes_are_a_budget_too(
    model: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["mixed", str(model), "-o", str(tmp_path / "m.yaml"), "--text", str(text), *OPTIONS]
    assert main([*words, "--megabytes", "0.15"]) == 0
    assert json.loads(capsys.readouterr().out)["stored_bytes"] <= 150_000
    words[3] = str(tmp_path / "n.yaml")
    assert main([*words, "--megabytes", "0.001"]) == 2
    words[3] = str(tmp_path / "n.yaml")
    assert main([*words, "--method", "llm_int8"]) == 2
    words[3] = str(tmp_path / "n.txt")
    assert main(words) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "m.yaml", "text.txt"]
