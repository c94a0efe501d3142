"""A recipe file of mixed widths, as Python asks for it."""

from pathlib import Path

import pytest
import torch

from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import make_model
from paredown.compress.recipe_file import read_recipe
from paredown.errors import CheckpointError, ConfigError, OutputError, ParedownError
from paredown.optimize import write_mixed_recipe as module
from paredown.optimize.write_mixed_recipe import MixedConfig, write_mixed_recipe


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "wide"
    make_model("llama", torch.bfloat16, 0, hidden_size=128, intermediate_size=256).save_pretrained(
        folder
    )
    write_byte_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "text.txt"
    path.write_text("All happy families are alike; every unhappy family is unhappy. " * 9)
    return path


def test_the_file_says_what_was_chosen(model: Path, text: Path, tmp_path: Path) -> None:
    config = MixedConfig(average_bits=3.5, text=text, num_tokens=64)
    counts: list[tuple[int, int]] = []
    chosen = write_mixed_recipe(
        str(model), tmp_path / "m.yaml", config, lambda done, total: counts.append((done, total))
    )
    assert 3 < chosen.average_bits <= 3.5
    assert counts[-1][0] == counts[-1][1]
    recipe = read_recipe(tmp_path / "m.yaml")
    assert {step.spec for step in recipe.quantize_steps} == {one.spec for one in chosen.chosen}


@pytest.mark.parametrize(
    ("output", "change", "error"),
    [
        ("m.txt", {}, ConfigError),
        ("there.yaml", {}, OutputError),
        ("m.yaml", {"group_size": 7}, ConfigError),
        ("m.yaml", {"method": "llm_int8"}, ParedownError),
        ("m.yaml", {"num_tokens": 0}, ConfigError),
        ("m.yaml", {"text": Path("no/such")}, CheckpointError),
    ],
)
def test_bad_input_is_refused_before_anything_is_measured(
    model, text, tmp_path, monkeypatch, output, change, error
) -> None:
    monkeypatch.setattr(module, "measure_choices", None)
    (tmp_path / "there.yaml").write_text("mine")
    with pytest.raises(error):
        write_mixed_recipe(model, tmp_path / output, MixedConfig(**({"text": text} | change)))
    assert [path.name for path in tmp_path.iterdir()] == ["there.yaml"]
    assert (tmp_path / "there.yaml").read_text() == "mine"


def test_a_budget_that_nothing_fits_writes_nothing(model: Path, text: Path, tmp_path: Path) -> None:
    config = MixedConfig(max_bytes=10, text=text, num_tokens=16)
    with pytest.raises(ConfigError, match="no choice of formats is that small"):
        write_mixed_recipe(model, tmp_path / "m.yaml", config)
    assert list(tmp_path.iterdir()) == []
