"""A GGUF file wherever a verb takes a model."""

import json
from pathlib import Path

import pytest

from paredown.cli.main import main
from paredown.compress.convert.gguf_mixture import GGUF_FORMATS
from paredown.compress.convert.write_gguf import write_gguf
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("gguf") / "default.gguf"
    write_gguf(Checkpoint.open(resolve_model(None)), path, formats=GGUF_FORMATS["gguf-q8_0"])
    return str(path)


def test_generate_takes_a_file(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", "--temperature", "0", "--max-tokens", "8", "--json", "Once upon a time"]
    texts = []
    for source in (["--model", model], []):
        assert main([*words[:1], *source, *words[1:]]) == 0
        texts.append(json.loads(capsys.readouterr().out)["completions"])
    assert texts[0] == texts[1]


def test_eval_compares_a_file_with_its_source(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("It was late in the evening when the ship came home. " * 40)
    options = ["--text", str(text), "--tokens", "200", "--reference", "default", "--json"]
    assert main(["eval", model, *options]) == 0
    quality = json.loads(capsys.readouterr().out)
    assert quality["name"] == "default.gguf"
    num_parameters = Checkpoint.open(Path(model)).spec.num_parameters()
    assert quality["bits_per_weight"] == 8 * Path(model).stat().st_size / num_parameters
    assert quality["top1_agreement"] > 0.95


def test_a_damaged_file_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    assert main(["eval", str(tmp_path / "bad.gguf")]) == 2
    assert "is damaged" in capsys.readouterr().err
