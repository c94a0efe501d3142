"""The verbs that measure a model say so under the same names, and refuse what predicts nothing."""

import argparse
import json
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch

from paredown.cli.verbs import bench as bench_verb
from paredown.cli.verbs import compress as compress_verb
from paredown.cli.verbs import eval as eval_verb
from paredown.cli.verbs import optimize as optimize_verb
from paredown.errors import (
    CheckpointError,
    ConfigError,
)

NAMES = {
    "name",
    "bits_per_weight",
    "file_bytes",
    "perplexity",
    "bits_per_byte",
    "kl_divergence",
    "top1_agreement",
    "decode_tokens_per_s",
    "prefill_tokens_per_s",
    "mbu",
    "mfu",
    "on_front",
}


def run_verb(verb, *arguments: str) -> int:
    parser = argparse.ArgumentParser()
    verb.add_arguments(parser)
    return verb.run(parser.parse_args(list(arguments)))


def test_verbs_print_json_with_the_same_names(
    model: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def json_of(verb, *arguments: str) -> dict:
        assert run_verb(verb, *arguments, "--json") == 0
        return json.loads(capsys.readouterr().out)

    small = str(tmp_path / "int8")
    made = json_of(compress_verb, str(model), "-o", small, "--recipe", "int8")
    assert made["bits_per_weight"] > 8
    common = ["--text", str(text), "--tokens", "200", "--threads", "1"]
    quality = json_of(eval_verb, small, "--reference", str(model), *common)
    assert set(quality) >= NAMES
    assert quality["kl_divergence"] > 0
    assert quality["decode_tokens_per_s"] is None
    speed = json_of(bench_verb, small, "--rounds", "2", "--threads", "1")
    assert set(speed) >= NAMES
    assert speed["decode_tokens_per_s"] > 0
    assert speed["file_bytes"] == made["file_bytes"] == quality["file_bytes"]
    out = ["-o", str(tmp_path / "best"), "--formats", "int8", "--rounds", "1", "--no-report"]
    best = json_of(optimize_verb, str(model), *out, *common, "--max-quality-loss", "50%")
    assert set(best["candidates"][0]) >= NAMES
    assert best["chosen"] == "int8"
    assert best["candidates"][0]["perplexity"] == pytest.approx(quality["perplexity"])
    assert best["serve"] == f"paredown serve {tmp_path / 'best'}"


def test_the_exit_code_tells_that_nothing_was_written(
    model: Path,
    text: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [str(model), "-o", str(tmp_path / "out"), "--text", str(text), "--tokens", "200"]
    arguments += ["--rounds", "1", "--no-report", "--formats", "int4-g32", "--max-kl", "0"]
    assert run_verb(optimize_verb, *arguments) == 1
    assert not (tmp_path / "out").exists()
    out = " ".join(capsys.readouterr().out.split())
    assert "none was written" in out
    assert "Nearest is int4-g32; in its way: --max-kl 0" in out


@pytest.mark.parametrize("columns", [80, 104])
def test_the_table_fits_the_terminal(
    model: Path,
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    columns: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    arguments = [str(model), "-o", str(tmp_path / "out"), "--text", str(text), "--tokens", "200"]
    arguments += ["--rounds", "1", "--threads", "1", "--no-report", "--max-quality-loss", "50%"]
    names = "int8,int4-g32-asym,int4-g128,gptq-int4-g32-head-int8"
    assert run_verb(optimize_verb, *arguments, "--formats", names) == 0
    out = capsys.readouterr().out
    assert "…" not in out
    assert "skipped int4-g128" in out
    assert "serve it: paredown serve" in out
    assert run_verb(eval_verb, str(tmp_path / "out"), "--text", str(text), "--threads", "1") == 0
    assert run_verb(bench_verb, str(tmp_path / "out"), "--rounds", "1", "--threads", "1") == 0
    assert "perplexity" in capsys.readouterr().out


@pytest.mark.parametrize("broken", ["model", "reference"])
def test_eval_refuses_a_model_or_a_reference_that_predicts_no_numbers(
    broken: str, model: Path, text: Path, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(model, damaged)
    tensors = safetensors.torch.load_file(damaged / "model.safetensors")
    tensors["model.norm.weight"][3] = torch.nan
    safetensors.torch.save_file(tensors, damaged / "model.safetensors")
    names = [str(damaged), str(model)] if broken == "model" else [str(model), str(damaged)]
    words = [names[0], "--reference", names[1], "--text", str(text), "--threads", "1"]
    with pytest.raises(CheckpointError, match=r"predictions of .*damaged are not numbers"):
        run_verb(eval_verb, *words, "--tokens", "50")


def test_bench_refuses_no_rounds(model: Path) -> None:
    with pytest.raises(ConfigError, match="--rounds must be at least one"):
        run_verb(bench_verb, str(model), "--rounds", "0")
