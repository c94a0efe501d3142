"""`paredown convert`, and the notes of verbs that run a checkpoint otherwise than its files ask."""

import json
from pathlib import Path

import pytest

from fakes.quantized_folders import edit_config, reorder, write_gptq
from paredown.cli import main as cli
from paredown.cli.verbs import bench, serve
from paredown.compress.compress import compress
from paredown.errors import CapacityError
from paredown.formats.stored.compressed_tensors.read_section import FP8_INPUTS
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.spec.weight import WeightSpec

INT4 = WeightSpec(dtype="int4", group_size=32)


def test_it_writes_a_checkpoint_and_says_what_it_did(capsys, tmp_path: Path) -> None:
    write_gptq(tmp_path / "in", INT4)
    words = ["convert", str(tmp_path / "in"), "-o", str(tmp_path / "out")]
    assert cli.main([*words, "--to", "compressed-tensors"]) == 0
    shown = capsys.readouterr()
    assert "compressed-tensors" in shown.out.replace("\n", "")
    assert "bits per weight" in shown.out.replace("\n", " ")
    assert Checkpoint.open(tmp_path / "out").linear("q", 0).spec == INT4
    assert cli.main([*words, "--to", "gptq"]) == 2
    assert "exists already" in capsys.readouterr().err


def test_its_json_and_its_notes(capsys, tmp_path: Path) -> None:
    write_gptq(tmp_path / "in", INT4, edit=reorder())
    words = ["convert", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--to", "fp16", "--json"]
    assert cli.main(words) == 0
    shown = capsys.readouterr()
    result = json.loads(shown.out)
    assert result["target"] == "fp16"
    assert result["clamped"] == {}
    assert result["file_bytes"] == Checkpoint.open(tmp_path / "out").file_bytes
    (note,) = result["notes"]
    assert shown.err.count(f"note: {note}") == 1


@pytest.mark.parametrize("words", [[], ["--to", "onnx"], ["--to", "gptq"]])
def test_words_that_make_no_sense_exit_with_2(capsys, words: list[str]) -> None:
    assert cli.main(["convert", "default", *words]) == 2
    assert capsys.readouterr().err.startswith("paredown: ")


def test_its_help_teaches_by_example(capsys) -> None:
    with pytest.raises(SystemExit):
        cli.main(["convert", "--help"])
    shown = capsys.readouterr().out
    assert "examples:" in shown
    assert "--to compressed-tensors" in shown


@pytest.fixture(scope="module")
def noted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The packaged model in fp8 that asks for fp8 inputs too."""
    folder = tmp_path_factory.mktemp("noted") / "model"
    compress(Checkpoint.open(resolve_model(None)), folder, "fp8")
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    inputs = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}
    config["config_groups"]["group_0"]["input_activations"] = inputs
    edit_config(folder, quantization_config=config)
    return str(folder)


@pytest.mark.parametrize(
    "words",
    [
        ["generate", "Once", "--max-tokens", "1", "--threads", "1", "--model"],
        ["eval", "--tokens", "64", "--threads", "1"],
    ],
)
def test_verbs_that_run_a_model_tell_its_notes_once(capsys, monkeypatch, noted, words) -> None:
    monkeypatch.setenv("PAREDOWN_CACHE", "off")
    assert cli.main([*words, noted]) == 0
    assert capsys.readouterr().err.count(f"note: {FP8_INPUTS}") == 1


@pytest.mark.parametrize(("verb", "step"), [(bench, "load_executor"), (serve, "Worker")])
def test_the_notes_come_before_the_work(capsys, monkeypatch, noted, verb, step: str) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise CapacityError("enough", seen=0, remedy="None.")

    monkeypatch.setattr(verb, step, refuse)
    assert cli.main([verb.__name__.rsplit(".", 1)[1], noted]) == 2
    assert capsys.readouterr().err.count(f"note: {FP8_INPUTS}") == 1
