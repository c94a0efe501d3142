"""A call from Python compresses, measures and proves as the command does."""

import json
from pathlib import Path

import pytest
import torch

from drivers.stored_fingerprint import read_fingerprint
from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import make_model
from paredown.cli.main import main
from paredown.compress import checked_recipe
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.quantize.rtn import RTN
from paredown.compress.recipe import Recipe
from paredown.compress.recipe_file import write_recipe
from paredown.compress.steps import QuantizeStep
from paredown.errors import (
    CapacityError,
    CheckpointError,
    ConfigError,
    OutputError,
    UnsupportedError,
)
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.evaluate.texts.text import EvalText
from paredown.evaluate.verify.verification_file import NAME
from paredown.formats.table import FORMATS
from paredown.jobs import compress as job
from paredown.jobs import verifier
from paredown.jobs.compress import compress_and_verify
from paredown.jobs.verify_config import VerifyConfig
from paredown.models.checkpoint import Checkpoint


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Groups of 128 do not divide its 96 columns."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    make_model("llama", torch.bfloat16, 0, initializer_range=0.08).save_pretrained(folder)
    write_byte_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "text.txt"
    path.write_text("It was the best of times, it was the worst. " * 20)
    return path


@pytest.fixture
def measured_on(text: Path) -> VerifyConfig:
    return VerifyConfig(text=text, num_tokens=200)


@pytest.mark.parametrize("recipe", ["int4-g32", "gptq-int4-g32"])
def test_the_folder_and_its_proof_are_those_of_the_command(
    model, text, measured_on, tmp_path, capsys, recipe
) -> None:
    words = ["compress", str(model), "-o", str(tmp_path / "a" / "out"), "--recipe", recipe]
    words += ["--text", str(text), "--tokens", "200", "--calibration-text", str(text)]
    assert main([*words, "--samples", "2", "--calibration-tokens", "32", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    shares: list[float] = []
    made = compress_and_verify(
        str(model),
        str(tmp_path / "b" / "out"),
        recipe,
        calibration=CalibrationConfig(text=text, num_samples=2, num_tokens=32),
        verify=measured_on,
        on_progress=lambda what, share: shares.append(share),
    )
    assert json.loads(json.dumps(made.as_json())) == said | {"path": str(tmp_path / "b" / "out")}
    assert made.not_verified is None
    assert made.source_bytes == Checkpoint.open(model).file_bytes
    assert 0 <= min(shares) <= max(shares) <= 1
    files = sorted(path.name for path in (tmp_path / "a" / "out").iterdir())
    assert NAME in files
    assert files == sorted(path.name for path in (tmp_path / "b" / "out").iterdir())
    for name in files:
        contents = [(tmp_path / one / "out" / name).read_bytes() for one in "ab"]
        assert contents[0] == contents[1], name


def test_a_recipe_is_checked_once(model, measured_on, tmp_path, monkeypatch) -> None:
    checked = []
    resolve = checked_recipe.resolve_schemes

    def counting(recipe, source):
        checked.append(recipe.name)
        return resolve(recipe, source)

    monkeypatch.setattr(checked_recipe, "resolve_schemes", counting)
    compress_and_verify(model, tmp_path / "out", "int8", verify=measured_on)
    assert checked == ["int8"]


def test_a_recipe_may_be_an_object_or_a_file(model, tmp_path) -> None:
    step = QuantizeStep(quantizer=RTN(), spec=FORMATS["int8"], targets=("down",))
    recipe = Recipe(name="mine", steps=(step,))
    write_recipe(recipe, tmp_path / "mine.yaml")
    source = Checkpoint.open(model)
    one = compress_and_verify(source, tmp_path / "one", recipe, verify=None)
    two = compress_and_verify(source, tmp_path / "two", tmp_path / "mine.yaml", verify=None)
    assert one.written.num_quantized == two.written.num_quantized == source.spec.num_layers
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert weights[0] == weights[1]


def test_without_verification_nothing_is_measured(model, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(verifier, "verify", None)
    monkeypatch.setattr(VerifyConfig, "choose_text", None)
    made = compress_and_verify(model, tmp_path / "out", "int8", verify=None)
    assert (made.verification, made.not_verified) == (None, "--no-verify")
    assert not (tmp_path / "out" / NAME).exists()


def test_windows_that_the_caller_has_are_those_that_are_looked_at(
    model, measured_on, tmp_path
) -> None:
    windows = torch.arange(64).reshape(2, 32).numpy()
    made = compress_and_verify(
        model,
        tmp_path / "out",
        "gptq-int4-g32",
        calibration=Calibration(windows_NT=windows, source="my windows"),
        verify=measured_on,
    )
    assert made.written.calibration == "my windows"


def test_an_existing_folder_is_replaced_only_when_that_is_asked(
    model, measured_on, tmp_path
) -> None:
    compress_and_verify(model, tmp_path / "out", "int8", verify=None)
    with pytest.raises(OutputError, match="exists already"):
        compress_and_verify(model, tmp_path / "out", "int4-g32", verify=measured_on)
    made = compress_and_verify(
        model, tmp_path / "out", "int4-g32", verify=measured_on, overwrite=True
    )
    assert made.verification is not None
    assert read_fingerprint(tmp_path / "out") == made.verification.fingerprint


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"recipe": "int9"}, ConfigError, "no such format"),
        ({"recipe": "gptq-int4-g128"}, UnsupportedError, "do not divide"),
        ({"recipe": Path("no/such.yaml")}, ConfigError, "recipe"),
        ({"model": "no/such"}, CheckpointError, "no checkpoint folder"),
        ({"num_threads": 0}, ConfigError, "number of threads"),
        ({"num_threads": 0, "verify": None}, ConfigError, "number of threads"),
        ({"verify": VerifyConfig(num_tokens=0)}, ConfigError, "--tokens"),
        ({"verify": VerifyConfig(text=Path("no/such"))}, CheckpointError, "cannot be read"),
        (
            {"recipe": "gptq-int4-g32", "calibration": CalibrationConfig(num_samples=0)},
            ConfigError,
            "--samples",
        ),
    ],
)
def test_bad_input_is_refused_before_any_work(
    model, measured_on, tmp_path, monkeypatch, change, error, says
) -> None:
    monkeypatch.setattr(job, "run_recipe", None)
    words = {"model": model, "output": tmp_path / "out", "recipe": "int8"}
    words |= {"verify": measured_on} | change
    with pytest.raises(error, match=says):
        compress_and_verify(**words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [CapacityError, UnsupportedError])
def test_what_cannot_be_measured_here_is_kept_and_says_why(
    model, measured_on, tmp_path, monkeypatch, error
) -> None:
    def refuse(*args, **options):
        raise error("it does not fit", seen="1 + 1", remedy="Buy more.")

    monkeypatch.setattr(verifier, "verify", refuse)
    made = compress_and_verify(model, tmp_path / "out", "int8", verify=measured_on)
    assert (made.verification, made.not_verified) == (None, "it does not fit (1 + 1)")
    assert (tmp_path / "out" / "model.safetensors").exists()
    assert not (tmp_path / "out" / NAME).exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, CheckpointError, OSError])
@pytest.mark.parametrize("step", ["verify", "write"])
def test_a_proof_that_fails_leaves_nothing_behind(
    model, measured_on, tmp_path, monkeypatch, error, step
) -> None:
    def fail(*args, **options):
        raise error("broken", seen=1, remedy="None.") if error is CheckpointError else error

    place = verifier if step == "verify" else verifier.Verification
    monkeypatch.setattr(place, step, fail)
    with pytest.raises(error):
        compress_and_verify(model, tmp_path / "deep" / "out", "int8", verify=measured_on)
    assert list(tmp_path.iterdir()) == []


def test_the_proof_lies_there_before_the_folder_has_its_name(
    model, measured_on, tmp_path, monkeypatch
) -> None:
    seen = []
    rename = Path.rename

    def watched(self, target):
        seen.append((self / NAME).is_file())
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", watched)
    compress_and_verify(model, tmp_path / "out", "int8", verify=measured_on)
    assert seen == [True]


def test_the_text_is_read_by_the_tokenizer_of_the_original(model, measured_on) -> None:
    found = measured_on.choose_text(Checkpoint.open(model), 1)
    assert isinstance(found, EvalText)
    assert (found.num_tokens, found.source) == (200, "text.txt")
