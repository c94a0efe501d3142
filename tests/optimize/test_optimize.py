"""The main job from end to end, on a tiny model, through the native executor."""

import json
from pathlib import Path

import pytest
import torch

from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import make_model
from optimize.test_verbs import NAMES
from paredown.compress.calibrate.walk import walk
from paredown.compress.compress import compress
from paredown.compress.recipe_names import find_recipe
from paredown.errors import (
    CapacityError,
    CheckpointError,
    ConfigError,
    OutputError,
    UnsupportedError,
)
from paredown.evaluate.quality.measurement import linear_format
from paredown.evaluate.quality.quality import measure_quality
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.executors.native import loading
from paredown.executors.native.memory_plan import plan_memory
from paredown.jobs import verifier
from paredown.jobs.run_recipe import run_recipe
from paredown.models.checkpoint import Checkpoint
from paredown.optimize.bounds import Bounds
from paredown.optimize.candidates import batches
from paredown.optimize.optimize import optimize
from paredown.optimize.optimize_config import OptimizeConfig, parse_formats
from paredown.spec.kv import KVSpec

FORMATS = ("fp32", "bf16", "int8", "int4-g32-asym", "int4-g128")


def config(tmp_path: Path, text: Path | None, **changes) -> OptimizeConfig:
    options = {
        "output": tmp_path / "small",
        "report": tmp_path / "report",
        "formats": FORMATS,
        "num_tokens": 300,
        "text": text,
        "num_rounds": 2,
        "bounds": Bounds(max_quality_loss=0.05),
        "num_threads": 1,
    }
    return OptimizeConfig(**(options | changes))


def test_a_candidate_that_does_not_fit_in_memory_is_skipped_with_the_arithmetic(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Checkpoint.open(model)
    pages = KVSpec(num_pages=19)
    plans = {}
    for name in ("fp32", "int8"):
        compress(source, tmp_path / name, name)
        plans[name] = plan_memory(Checkpoint.open(tmp_path / name), pages, 1).total_bytes
    between = (plans["fp32"] + max(plans["int8"], plan_memory(source, pages, 1).total_bytes)) // 2
    monkeypatch.setattr(loading, "available_memory_bytes", lambda: between)
    options = config(tmp_path, text, formats=("fp32", "int8"), report=None)
    result = optimize(model, options, lambda what, share: None)
    assert [one.name for one in result.candidates] == ["int8"]
    assert [one.name for one in result.skipped] == ["fp32"]
    assert "does not fit in memory" in result.skipped[0].reason


def test_everything_comes_out(model: Path, text: Path, tmp_path: Path) -> None:
    seen: list[float] = []
    result = optimize(model, config(tmp_path, text), lambda what, share: seen.append(share))
    assert [one.name for one in result.candidates] == ["fp32", "bf16", "int8", "int4-g32-asym"]
    assert [one.name for one in result.skipped] == ["int4-g128"]
    assert "128" in result.skipped[0].reason
    assert seen == sorted(seen)
    assert 0 <= seen[0] <= seen[-1] <= 1

    bf16 = result.candidates[1]
    assert bf16.perplexity == result.reference.perplexity
    assert bf16.kl_divergence == 0
    assert bf16.top1_agreement == 1
    assert any(one.on_front for one in result.candidates)
    assert result.chosen is not None

    written = Checkpoint.open(tmp_path / "small")
    assert linear_format(written).name == result.chosen
    chosen = next(one for one in result.candidates if one.name == result.chosen)
    assert written.file_bytes == chosen.file_bytes
    assert result.serve_line == f"paredown serve {tmp_path / 'small'}"
    stored = json.loads((tmp_path / "report" / "results.json").read_text())
    assert set(stored["candidates"][0]) >= NAMES
    assert {path.name for path in tmp_path.iterdir()} == {"small", "report", "text.txt"}


def test_nothing_is_written_when_all_lose_too_much(model: Path, text: Path, tmp_path: Path) -> None:
    options = config(
        tmp_path, text, formats=("int4-g32",), bounds=Bounds(max_quality_loss=-0.5), report=None
    )
    result = optimize(model, options, lambda what, share: None)
    assert result.chosen is None
    assert result.nearest == "int4-g32"
    assert [gap.bound for gap in result.missed] == ["--max-quality-loss"]
    assert result.serve_line is None
    assert {path.name for path in tmp_path.iterdir()} == {"text.txt"}


@pytest.mark.parametrize("stage", ["compressing", "predicting", "timing", "writing", "drawing"])
def test_an_interrupt_leaves_nothing_half_written(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))

    def interrupt(what: str, share: float) -> None:
        if what.startswith(stage):
            raise KeyboardInterrupt

    options = config(tmp_path, text, formats=("bf16", "int8"))
    with pytest.raises(KeyboardInterrupt):
        optimize(model, options, interrupt)
    assert list(scratch.iterdir()) == []
    left = {path.name for path in tmp_path.iterdir()} - {"scratch", "text.txt"}
    assert left == ({"small"} if stage == "drawing" else set())


@pytest.mark.parametrize("name", ["small", "report"])
def test_outputs_that_exist_are_refused_at_once(model: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(OutputError, match=name):
        optimize(model, config(tmp_path, None), lambda what, share: pytest.fail("too late"))


def test_bad_options_are_refused(model: Path, tmp_path: Path) -> None:
    for changes in ({"formats": ()}, {"num_tokens": 0}, {"num_rounds": 0}):
        with pytest.raises(ConfigError, match="at least one"):
            optimize(model, config(tmp_path, None, **changes), lambda what, share: None)
    with pytest.raises(ConfigError, match="int9"):
        parse_formats("int8, int9")
    with pytest.raises(ConfigError, match="mixed-9"):
        parse_formats("int8, mixed-9")
    assert parse_formats("int8, bf16,int8,mixed-4") == ("int8", "bf16", "mixed-4")


def test_what_does_not_fit_together_is_measured_in_turns(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paredown.optimize.candidates._MEMORY_SHARE", 1e-9)
    source = Checkpoint.open(model)
    recipes = [find_recipe(name) for name in ("bf16", "int8", "int4-g32")]
    assert batches(source, recipes) == [[recipe] for recipe in recipes]
    calls = []

    def counted(models, *args):
        calls.append(len(models))
        return measure_quality(models, *args)

    monkeypatch.setattr("paredown.optimize.candidates.measure_quality", counted)
    options = config(tmp_path, text, formats=("bf16", "int8"), report=None)
    result = optimize(model, options, lambda what, share: None)
    assert calls == [1, 1]
    assert [one.name for one in result.candidates] == ["bf16", "int8"]


def test_layers_that_two_recipes_share_are_calibrated_once(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks = []

    def counted(plan, *args):
        walks.append(plan.checked.changes(plan.checked.source.names.output))
        return walk(plan, *args)

    monkeypatch.setattr("paredown.compress.compress.walk", counted)
    names = ("gptq-int4-g32", "gptq-int4-g32-head-int8")
    calibration = CalibrationConfig(text=text, num_samples=2, num_tokens=32)
    options = config(
        tmp_path, text, formats=names, bounds=Bounds(max_quality_loss=9.0), calibration=calibration
    )
    result = optimize(model, options, lambda what, share: None)
    assert walks == [True]
    assert tuple(one.name for one in result.candidates) == names


@pytest.mark.parametrize(
    ("output", "report"), [("a", "a"), ("a/b", "a"), ("../a", "a/../../a"), ("file/x", "b")]
)
def test_outputs_that_cannot_be_are_refused_before_anything_is_measured(
    output: str, report: str, model: Path, text: Path, tmp_path: Path
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "file").write_text("0")
    options = config(tmp_path, text, output=inner / output, report=inner / report)

    def never(what: str, share: float) -> None:
        raise AssertionError(what)

    with pytest.raises(OutputError):
        optimize(model, options, never)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_model_that_can_have_no_format_is_refused_with_the_reasons(
    compressed: bool, model: Path, text: Path, tmp_path: Path
) -> None:
    source, why = model, "groups of 128 columns"
    if compressed:
        source, why = tmp_path / "int8", "compressed already"
        compress(Checkpoint.open(model), source, "int8")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UnsupportedError, match=why):
        optimize(source, config(tmp_path, text, formats=("int4-g128",)), lambda what, share: None)
    assert sorted(tmp_path.iterdir()) == before


def test_mixed_widths_are_a_candidate(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_model("llama", torch.bfloat16, 0, hidden_size=128, intermediate_size=256).save_pretrained(
        tmp_path / "wide"
    )
    write_byte_tokenizer(tmp_path / "wide")
    monkeypatch.setattr("paredown.optimize.mixed_recipes.NUM_TOKENS", 32)
    seen: list[float] = []
    options = config(
        tmp_path,
        text,
        formats=("int8", "mixed-4", "mixed-3.5"),
        report=None,
        bounds=Bounds(max_quality_loss=9.0),
        calibration=CalibrationConfig(text=text, num_samples=4, num_tokens=32),
    )
    result = optimize(tmp_path / "wide", options, lambda what, share: seen.append(share))
    assert seen == sorted(seen)
    assert not result.skipped
    int8, four, less = result.candidates
    assert (four.name, less.name) == ("mixed-4", "mixed-3.5")
    assert int8.file_bytes > four.file_bytes > less.file_bytes


def test_a_mixture_that_the_model_cannot_have_is_skipped(
    model: Path, text: Path, tmp_path: Path
) -> None:
    options = config(tmp_path, text, formats=("int8", "mixed-4"), report=None)
    result = optimize(model, options, lambda what, share: None)
    assert [one.name for one in result.candidates] == ["int8"]
    assert [one.name for one in result.skipped] == ["mixed-4"]
    assert "128" in result.skipped[0].reason


def test_a_calibrated_candidate_is_made_once(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def counting(*arguments, **options):
        made.append(arguments[0].recipe.name)
        return run_recipe(*arguments, **options)

    monkeypatch.setattr("paredown.optimize.candidates.run_recipe", counting)
    monkeypatch.setattr("paredown.optimize.finish.run_recipe", counting)
    calibration = CalibrationConfig(text=text, num_samples=4, num_tokens=32)
    options = config(
        tmp_path,
        text,
        formats=("gptq-int4-g32",),
        report=None,
        bounds=Bounds(max_quality_loss=9.0),
        calibration=calibration,
    )
    result = optimize(model, options, lambda what, share: None)
    assert made == ["gptq-int4-g32"]
    assert result.chosen == "gptq-int4-g32"
    assert result.calibration == "4 windows of 32 tokens of text.txt"
    written = Checkpoint.open(tmp_path / "small")
    assert written.weight_specs()["model.layers.0.self_attn.q_proj"].name == "int4-g32"
    assert (tmp_path / "small" / "verification.json").is_file()
    assert result.verification is not None
    assert result.not_verified is None


@pytest.mark.parametrize("calibrated", [False, True])
def test_a_choice_that_cannot_be_measured_again_is_kept_and_says_why(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calibrated: bool
) -> None:
    def refuse(*args, **options):
        raise CapacityError("it does not fit", seen="1 + 1", remedy="Buy more.")

    monkeypatch.setattr(verifier, "verify", refuse)
    options = config(
        tmp_path,
        text,
        formats=("gptq-int4-g32" if calibrated else "int8",),
        report=None,
        bounds=Bounds(max_quality_loss=9.0),
        calibration=CalibrationConfig(text=text, num_samples=4, num_tokens=32),
    )
    result = optimize(str(model), options)
    assert (result.verification, result.not_verified) == (None, "it does not fit (1 + 1)")
    assert result.as_json()["not_verified"] == result.not_verified
    assert (tmp_path / "small" / "model.safetensors").is_file()
    assert not (tmp_path / "small" / "verification.json").exists()


def test_a_proof_that_fails_leaves_nothing(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args, **options):
        raise CheckpointError("broken", seen=1, remedy="None.")

    monkeypatch.setattr(verifier, "verify", fail)
    options = config(
        tmp_path, text, formats=("int8",), report=None, bounds=Bounds(max_quality_loss=9.0)
    )
    with pytest.raises(CheckpointError, match="broken"):
        optimize(model, options)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]
