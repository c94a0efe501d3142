"""Recipes that train codes run from a model to a verified folder, and go on after an interrupt."""

import json
from pathlib import Path

import pytest
import torch

from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import make_model
from paredown.errors import ConfigError, UnsupportedError
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.evaluate.verify.verification_file import NAME
from paredown.jobs.compress import compress_and_verify
from paredown.jobs.stages import stages_path
from paredown.jobs.train_codes import STAGE
from paredown.jobs.verify_config import VerifyConfig
from paredown.models.checkpoint import Checkpoint

SIZES = {"hidden_size": 64, "intermediate_size": 128}
QAD = "qad-int2-g32-8192"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    make_model("llama", torch.float32, 0, initializer_range=0.15, **SIZES).save_pretrained(folder)
    write_byte_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "text.txt"
    path.write_text("It was the best of times, it was the worst of times. " * 40)
    return path


def run(model: Path, text: Path, output: Path, recipe: str, **changes):
    options = {
        "calibration": CalibrationConfig(text=text, num_samples=4, num_tokens=32),
        "verify": VerifyConfig(text=text, num_tokens=100),
        "num_threads": 1,
    } | changes
    return compress_and_verify(model, output, recipe, **options)


def divergence(made) -> float:
    return made.verification.compressed.kl_divergence


def test_qad_from_gptq(model: Path, text: Path, tmp_path: Path) -> None:
    made = run(model, text, tmp_path / "qad", QAD)
    plain = run(model, text, tmp_path / "gptq", "gptq-int2-g32")
    assert made.written.name == QAD
    assert made.written.num_quantized == 14
    assert any("codes trained on 8,192 tokens" in note for note in made.written.notes)
    # So short a training gains little here; wrong codes or scales would lose all.
    assert divergence(made) < 1.05 * divergence(plain)
    proof = json.loads((tmp_path / "qad" / NAME).read_text())
    assert any("codes trained on 8,192 tokens" in note for note in proof["notes"])
    before, after = (Checkpoint.open(tmp_path / name) for name in ("gptq", "qad"))
    assert after.weight_specs() == before.weight_specs()
    assert after.file_bytes == before.file_bytes
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gptq", "qad"]


@pytest.mark.parametrize(
    "recipe",
    [
        "qat-rtn-int4-g32-8192",
        "gptq-int3-g32-scales-8192",
        "llm-qat-w4a8-kv8-8192",
        "prune-ffn-50-qad-int4-g32-head-int8-8192",
        "wanda-50-qad-awq-int4-g32-8192",
    ],
)
def test_every_kind_runs(recipe: str, model: Path, text: Path, tmp_path: Path) -> None:
    made = run(model, text, tmp_path / "out", recipe)
    assert made.verification is not None
    assert made.written.name == recipe
    assert Checkpoint.open(tmp_path / "out").is_quantized
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_an_interrupted_run_goes_on(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(model, text, tmp_path / "whole" / "out", QAD, verify=None)
    output = tmp_path / "broken" / "out"

    def interrupt(*args, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("paredown.jobs.train_codes.train_quantized", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(model, text, output, QAD, verify=None)
    kept = sorted(path.name for path in stages_path(output).iterdir())
    assert kept == [STAGE, "lock", "state.json"]
    monkeypatch.setattr("paredown.jobs.train_codes.compress", None)
    run(model, text, output, QAD, verify=None)
    assert [path.name for path in output.parent.iterdir()] == ["out"]
    for path in output.iterdir():
        assert path.read_bytes() == (tmp_path / "whole" / "out" / path.name).read_bytes()


@pytest.mark.parametrize(
    ("recipe", "error", "says"),
    [
        ("qad-int3-g32-10", ConfigError, "shorter than one step"),
        ("qad-w4a8-g32-qoq", UnsupportedError, "depend on each other"),
        ("aqlm-1x8-g4-scales", UnsupportedError, "do not lie on a grid"),
        ("qad-int4-g128", UnsupportedError, "do not divide"),
    ],
)
def test_bad_recipes_are_refused_before_any_work(
    recipe: str, error: type[Exception], says: str, model: Path, text: Path, tmp_path: Path
) -> None:
    with pytest.raises(error, match=says):
        run(model, text, tmp_path / "out", recipe)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        (
            [{"method": "gptq", "format": "int4-g32"}, {"method": "qad", "rule": "minmax"}],
            "would lose the codes of GPTQ",
        ),
        (
            [{"method": "rtn", "format": "int8", "targets": ["head"]}, {"method": "qad"}],
            "none of the layers",
        ),
    ],
)
def test_bad_files_are_refused(
    steps: list[dict[str, object]], says: str, model: Path, text: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text(json.dumps({"steps": steps}))
    with pytest.raises(ConfigError, match=says):
        run(model, text, tmp_path / "out", str(tmp_path / "mine.yaml"))
    assert not (tmp_path / "out").exists()
