"""What is quantized already is an original only where the user says so."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.tiny_models import make_model
from paredown.cli.main import main
from paredown.compress.convert.convert import convert
from paredown.errors import UnsupportedError
from paredown.evaluate.verify.verification_file import NAME
from paredown.jobs.compress import compress_and_verify
from paredown.jobs.float_source import FromQuantized, float_source
from paredown.jobs.verify_config import VerifyConfig
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    make_model("llama", torch.bfloat16, 0).save_pretrained(folder)
    return folder


@pytest.fixture
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "text.txt"
    path.write_text("It was the best of times, it was the worst. " * 20)
    return path


GGUF_TYPES = ("gguf-q4_0", "gguf-q8_0")


@pytest.fixture(scope="module", params=GGUF_TYPES)
def quantized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    convert(Checkpoint.open(resolve_model(None)), path, request.param)
    return path


@pytest.mark.parametrize(
    "verb", [["compress", "--recipe", "int8"], ["mixed"], ["sensitivity"], ["optimize"]]
)
def test_every_verb_refuses_it_before_any_work(
    quantized: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: list[str]
) -> None:
    output = ["--report" if verb[0] == "sensitivity" else "-o", str(tmp_path / "out.yaml")]
    assert main([*verb, str(quantized), *output, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["type"] == "UnsupportedError"
    assert str(quantized) in error["seen"]
    assert "--from-quantized" in error["remedy"]
    assert list(tmp_path.iterdir()) == []


def test_the_floats_are_those_that_the_file_means(quantized: Path) -> None:
    with pytest.raises(UnsupportedError, match="compressed already"), float_source(quantized):
        pytest.fail("too late")
    with float_source(FromQuantized(model=quantized)) as source:
        assert not source.floats.is_quantized
        assert source.original.path == quantized
        for role in ("q", "down"):
            meant = source.original.linear(role, 1).dequantize()
            found = source.floats.linear(role, 1).dequantize()
            assert np.max(np.abs(meant - found)) <= 2.0**-8 * np.max(np.abs(meant))
        place = source.floats.path
    assert not place.exists()


def test_a_folder_of_floats_is_taken_as_it_is(model: Path) -> None:
    for named in (model, FromQuantized(model=model)):
        with float_source(named) as source:
            assert source.floats is source.original
            assert source.notes == ()


def test_the_proof_says_what_the_original_was(
    quantized: Path,
    text: Path,
    tmp_path: Path,
) -> None:
    words = ["compress", str(quantized), "-o", str(tmp_path / "a"), "--recipe", "int4-g32"]
    words += ["--text", str(text), "--tokens", "100", "--threads", "1"]
    assert main([*words, "--from-quantized"]) == 0
    proof = json.loads((tmp_path / "a" / NAME).read_text())
    assert any("the original is quantized itself" in note for note in proof["notes"])
    assert Checkpoint.open(tmp_path / "a").weight_specs()["model.layers.0.mlp.up_proj"].bits == 4


def test_python_takes_it_too(
    quantized: Path,
    text: Path,
    tmp_path: Path,
) -> None:
    measured_on = VerifyConfig(text=text, num_tokens=100)
    made = compress_and_verify(
        FromQuantized(model=quantized), tmp_path / "b", "int8", verify=measured_on, num_threads=1
    )
    assert made.written.notes[0].startswith("the original is quantized itself")
    assert made.verification is not None
