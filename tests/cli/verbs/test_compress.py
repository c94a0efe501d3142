"""`paredown compress` as it is called: what it prints, and what is left when something fails."""

import json
from pathlib import Path

import pytest
import torch

from drivers.stored_fingerprint import read_fingerprint
from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import make_model
from paredown.cli.main import main
from paredown.cli.tables.notes import join_notes
from paredown.errors import CapacityError, CheckpointError
from paredown.evaluate.verify.verification_file import NAME
from paredown.jobs import compress as job
from paredown.jobs import verifier


@pytest.fixture
def model(tmp_path: Path) -> Path:
    make_model("llama", torch.bfloat16, 0).save_pretrained(tmp_path / "model")
    write_byte_tokenizer(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def words(model: Path, tmp_path: Path) -> list[str]:
    (tmp_path / "text.txt").write_text("It was the best of times, it was the worst. " * 20)
    text = ["--text", str(tmp_path / "text.txt"), "--tokens", "300"]
    return ["compress", str(model), "-o", str(tmp_path / "out"), "--recipe", "int4-g32", *text]


def test_it_prints_what_it_cost_and_writes_it_beside_the_weights(words, tmp_path, capsys) -> None:
    assert main(words) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for part in ("perplexity", "KL divergence", "top-1 agreement", "worst layers", "text.txt"):
        assert part in shown
    assert read_fingerprint(tmp_path / "out") is not None


def test_json_has_all_of_it(words, tmp_path, capsys) -> None:
    assert main([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    written = json.loads((tmp_path / "out" / NAME).read_text())
    assert result["not_verified"] is None
    assert result["verification"].items() <= written.items()
    assert len(result["verification"]["layer_errors"]) == 2


def test_no_verify_measures_nothing_and_says_so(words, tmp_path, capsys) -> None:
    assert main([*words, "--no-verify", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["verification"], result["not_verified"]) == (None, "--no-verify")
    assert not (tmp_path / "out" / NAME).exists()


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        (["--text", "no/such.txt"], "cannot be read"),
        (["--tokens", "0"], "--tokens"),
        (["--recipe", "int9"], "no such format"),
        (["-o", "."], "exists already"),
        (["--threads", "0"], "number of threads"),
        (["--recipe", "gptq-int4-g128"], "do not divide"),
        (["--recipe", "gptq-int4-g32", "--samples", "0"], "--samples"),
        (["--recipe", "gptq-int4-g32", "--samples", "99999999999"], "more text than"),
        (["--recipe", "gptq-int4-g32", "--calibration-tokens", "1"], "--calibration-tokens"),
        (["--recipe", "gptq-int4-g32", "--seed", "-1"], "--seed"),
    ],
)
def test_bad_input_is_told_before_any_work(words, tmp_path, capsys, monkeypatch, extra, says):
    monkeypatch.setattr(job, "run_recipe", None)
    assert main([*words, *extra]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_verified_for_its_size_is_kept_and_said(
    words, tmp_path, capsys, monkeypatch
) -> None:
    def too_large(*args, **options):
        raise CapacityError("The model does not fit in memory", seen="1 + 1", remedy="Buy more.")

    monkeypatch.setattr(verifier, "verify", too_large)
    assert main(words) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "not verified: The model does not fit in memory (1 + 1)" in shown
    assert (tmp_path / "out" / "model.safetensors").exists()
    assert not (tmp_path / "out" / NAME).exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, CheckpointError])
def test_what_fails_to_verify_leaves_nothing_behind(words, tmp_path, monkeypatch, error) -> None:
    def fail(*args, **options):
        raise error("broken", seen=1, remedy="None.") if error is CheckpointError else error

    monkeypatch.setattr(verifier, "verify", fail)
    assert main(words) == (2 if error is CheckpointError else 130)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "text.txt"]


def test_notes_that_say_the_same_are_one() -> None:
    notes = ["a: damp grew", "went on", "b: damp grew", "c: alpha: 0.5", "d: damp grew", "end"]
    joined = ["a and 2 more: damp grew", "went on", "c: alpha: 0.5", "end"]
    assert join_notes(notes) == joined


def test_a_note_about_every_layer_is_printed_once(words, capsys) -> None:
    assert main([*words, "--recipe", "llm-int8"]) == 0
    assert capsys.readouterr().out.count("note:") == 1
