"""`paredown distill` as it is called: what it prints and writes, and what it refuses."""

import json
from pathlib import Path

import pytest
import torch

from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import make_model
from paredown.cli.main import main
from paredown.cli.verbs import distill


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    make_model("llama", torch.bfloat16, 0).save_pretrained(tmp_path / "model")
    write_byte_tokenizer(tmp_path / "model")
    (tmp_path / "text.txt").write_text("It was the best of times, it was the worst.\n" * 80)
    text = str(tmp_path / "text.txt")
    return [
        *("distill", str(tmp_path / "model"), "-o", str(tmp_path / "out"), "--threads", "1"),
        *("--data", text, "--row-tokens", "16", "--tokens", "320", "--batch-tokens", "64"),
        *("--held-out", "0.3", "--verify-text", text, "--verify-tokens", "100"),
    ]


def test_it_prints_how_the_student_compares(words, tmp_path, capsys) -> None:
    more = ["--log", str(tmp_path / "log.csv"), "--plot", str(tmp_path / "losses.png")]
    assert main([*words, *more]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for part in ("soft-label", "student", "before", "teacher", "KL divergence", "held-out text"):
        assert part in shown
    assert (tmp_path / "losses.png").read_bytes().startswith(b"\x89PNG")
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 6


def test_json_has_all_of_it_and_a_helper_says_nothing(words, tmp_path, capsys, monkeypatch) -> None:
    assert main([*words, "--json", "--method", "kl", "--temperature", "2"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["method"], result["num_tokens"]) == ("kl", 320)
    assert result["verification"]["compressed"]["kl_divergence"] > 0
    monkeypatch.setattr(distill, "is_helper", lambda: True)
    assert main([*words, "-o", str(tmp_path / "other"), "--no-verify"]) == 0
    assert capsys.readouterr().out == ""


def test_auto_says_what_it_chose_and_why(words, capsys) -> None:
    assert main([*words, "--method", "auto", "--no-verify"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "auto chose slim: the text is not the teacher's own" in shown


def test_the_teacher_is_kept_on_disk(words, tmp_path, capsys) -> None:
    logits = str(tmp_path / "logits")
    assert main([*words, "--no-verify", "--teacher-logits", logits, "--keep", "top-4"]) == 0
    assert "kept as top-4" in " ".join(capsys.readouterr().out.split())
    header = json.loads((tmp_path / "logits" / "header.json").read_text())
    assert (header["keep"], header["missing_mass"]) == ("top-4", "spread")


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        (["--method", "magic"], "invalid choice"),
        (["--student", "half"], "no such student"),
        (["--student", "width-100"], "as wide as its teacher"),
        (["--student", "width-10"], "no attention head"),
        (["--student", "every-3"], "too few layers"),
        (["--keep", "top-4"], "--teacher-logits"),
        (["--teacher-logits", "logits", "--keep", "best"], "cannot be kept"),
        (["--teacher-logits", "logits", "--method", "gkd"], "stored distributions"),
        (["--teacher-logits", "logits", "--temperature", "2"], "another temperature"),
        (["--teacher-logits", "logits", "--method", "jsd"], "every token"),
        (["--teacher-logits", "."], "other files"),
        (["--temperature", "0"], "temperature"),
        (["--label-weight", "-1"], "weight"),
        (["--method", "tinybert", "--layer-map", "middle"], "map of layers"),
        (["--method", "tinybert", "--feature-weight", "-1"], "features"),
        (["--method", "reward"], "no --reward"),
        (["--method", "reward", "--reward", "no.such:score"], "cannot be loaded"),
        (["--method", "auto", "--reward", "nonsense"], "neither a function nor an address"),
        (["--tokens", "0"], "no time"),
        (["--minutes", "3"], "not allowed with"),
        (["--held-out", "1"], "held out"),
        (["--row-tokens", "1"], "too short"),
        (["--learning-rate", "0"], "learning rate"),
        (["--patience", "0"], "patience"),
        (["--data", "no/such.jsonl"], "cannot be read"),
        (["--plot", "losses.pdf"], "--plot"),
        (["--verify-tokens", "0"], "--tokens"),
        (["-o", "."], "exists already"),
    ],
)
def test_bad_input_is_told_before_the_training(
    words, tmp_path, capsys, monkeypatch, extra, says
) -> None:
    monkeypatch.setattr("paredown.distill.distill.train", None)
    assert main([*words, *extra]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
