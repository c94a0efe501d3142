"""`paredown convert --to gguf-q4_k_m`: its options, and what they refuse."""

import json
from pathlib import Path

import gguf
import pytest

from paredown.cli import main as cli
from paredown.models.checkpoint import Checkpoint

FAST = ["--samples", "4", "--calibration-tokens", "32", "--threads", "1", "--no-verify"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("It was late in the evening when the ship came home. " * 60)
    return str(path)


def convert(out: Path, *words: str) -> int:
    return cli.main(["convert", "default", "-o", str(out), "--to", "gguf-q4_k_m", *FAST, *words])


def test_it_fits_by_a_text_and_saves_what_it_saw(
    capsys: pytest.CaptureFixture[str], text: str, tmp_path: Path
) -> None:
    saved = tmp_path / "i.gguf"
    words = ["--calibration-text", text, "--save-importance", str(saved)]
    assert convert(tmp_path / "one.gguf", *words) == 0
    assert "fitted by the importance of columns" in capsys.readouterr().out
    words = ["--importance", str(saved), "--json"]
    assert convert(tmp_path / "two.gguf", *words) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["target"] == "gguf-q4_k_m"
    assert "text.txt" in told["importance"]
    assert (tmp_path / "one.gguf").read_bytes() == (tmp_path / "two.gguf").read_bytes()
    assert Checkpoint.open(tmp_path / "one.gguf").is_quantized
    assert gguf.GGUFReader(saved).fields["general.type"].contents() == "imatrix"


def test_none_looks_at_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["--importance", "none", "--calibration-text", str(tmp_path / "none"), "--json"]
    assert convert(tmp_path / "m.gguf", *words) == 0
    assert json.loads(capsys.readouterr().out)["importance"] is None


@pytest.mark.parametrize(
    "words", [["--importance", "none"], ["--importance", "x"], ["--save-importance", "i.gguf"]]
)
@pytest.mark.parametrize("target", ["gguf-q8_0", "gguf", "bf16", "gptq"])
def test_other_targets_take_none(
    capsys: pytest.CaptureFixture[str], target: str, words: list[str], tmp_path: Path
) -> None:
    out = ["convert", "default", "-o", str(tmp_path / "m.gguf"), "--to", target]
    assert cli.main([*out, *words]) == 2
    told = capsys.readouterr().err
    assert words[0] in told
    assert "--to gguf-q4_k_m" in told
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_not_there_says_what_there_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert convert(tmp_path / "m.gguf", "--importance", "Auto") == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "Auto cannot be read" in told
    assert not list(tmp_path.iterdir())


def test_its_help_teaches_by_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["convert", "--help"])
    shown = capsys.readouterr().out
    assert "--to gguf-q4_k_m --importance imatrix.gguf" in shown
    assert "--save-importance FILE" in shown
