"""The search from end to end, on a tiny model: near what is allowed, in time, and when stopped."""

import json
from pathlib import Path

import pytest

from optimize.test_optimize import config
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.optimize import optimize as optimize_module
from paredown.optimize import search as search_module
from paredown.optimize.bounds import Bounds
from paredown.optimize.deadline import Deadline, OutOfTimeError
from paredown.optimize.optimize import optimize
from paredown.stopped import StoppedError


def searching(tmp_path: Path, text: Path, **changes):
    calibration = CalibrationConfig(text=text, num_samples=2, num_tokens=32)
    options = {"formats": None, "calibration": calibration, "num_tokens": 200}
    return config(tmp_path, text, **(options | changes))


def test_mixes_by_every_method_stand_near_the_allowed_loss(
    model: Path, text: Path, tmp_path: Path
) -> None:
    seen: list[float] = []
    allowed = Bounds(max_kl=0.01)
    result = optimize(
        model, searching(tmp_path, text, bounds=allowed), lambda what, share: seen.append(share)
    )
    assert seen == sorted(seen)
    names = [one.name for one in result.candidates]
    assert any(name.startswith("gptq-mix-") for name in names)
    assert set(result.mixes) <= set(names)
    assert result.chosen is not None
    chosen = next(one for one in result.candidates if one.name == result.chosen)
    assert chosen.kl_divergence is not None
    assert chosen.kl_divergence <= 0.01
    assert (tmp_path / "small" / "verification.json").is_file()


def test_a_size_is_met_with_the_best_quality(model: Path, text: Path, tmp_path: Path) -> None:
    full = sum(path.stat().st_size for path in model.glob("*.safetensors")) / 1e6
    bounds = Bounds(max_mb=0.62 * full)
    result = optimize(model, searching(tmp_path, text, bounds=bounds, report=None))
    meeting = [one for one in result.candidates if one.file_bytes / 1e6 <= 0.62 * full]
    assert meeting
    chosen = next(one for one in result.candidates if one.name == result.chosen)
    assert chosen.perplexity == min(one.perplexity for one in meeting)


def test_what_the_time_does_not_allow_is_told(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Deadline, "allows", lambda self, estimated_s: False)
    result = optimize(model, searching(tmp_path, text, minutes=5.0))
    assert [one.name for one in result.not_tried] == ["mixes of formats"]
    assert result.candidates
    html = (tmp_path / "report" / "report.html").read_text()
    assert "not tried" in html


def test_what_takes_longer_than_the_time_is_given_up(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = []

    def check(self: Deadline) -> None:
        checks.append(1)
        if len(checks) > 40:
            raise OutOfTimeError

    monkeypatch.setattr(Deadline, "check", check)
    result = optimize(model, searching(tmp_path, text, minutes=5.0, report=None))
    assert "took" in result.not_tried[-1].reason
    assert result.candidates
    assert "mix" in result.not_tried[-1].name


def test_a_stopped_search_leaves_its_report_and_no_checkpoint(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: object) -> None:
        raise StoppedError(15)

    monkeypatch.setattr(search_module, "measure_losses", stop)
    result = optimize(model, searching(tmp_path, text))
    assert result.stopped == "stopped by SIGTERM"
    assert result.exit_code == 143
    stored = json.loads((tmp_path / "report" / "results.json").read_text())
    assert [one["name"] for one in stored["candidates"]] == [one.name for one in result.candidates]
    assert not (tmp_path / "small").exists()
    with pytest.raises(StoppedError):
        optimize(model, searching(tmp_path, text, output=tmp_path / "b", report=None))


def test_the_report_says_how_much_the_calibration_text_matters(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.txt"
    other.write_text("One two three four five six seven. " * 400)
    monkeypatch.setattr(
        optimize_module, "calibration_texts", lambda config, tokenizer: [other, text]
    )
    result = optimize(model, searching(tmp_path, text, bounds=Bounds(max_kl=0.01)))
    choice = result.text_choice
    assert choice is not None
    assert choice.candidate in result.mixes
    by_name = {one.name: one for one in result.candidates}
    twin = by_name[f"{choice.candidate}-one-text"]
    assert list(choice.kl_by_text.values()) == [
        by_name[choice.candidate].kl_divergence,
        twin.kl_divergence,
    ]
    assert "other.txt" in list(choice.kl_by_text)[1]
    html = (tmp_path / "report" / "report.html").read_text()
    assert "by its calibration text" in html
    assert "other.txt" in html


def test_a_mix_that_could_not_be_made_is_compared_with_nothing(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = search_module.measure_candidates

    def skip_mixes(setup, recipes, found, on_progress) -> None:
        for recipe in recipes:
            if "mix" in recipe.name:
                found.recipes[recipe.name] = recipe
            else:
                measure(setup, [recipe], found, on_progress)

    monkeypatch.setattr(search_module, "measure_candidates", skip_mixes)
    monkeypatch.setattr(
        optimize_module, "calibration_texts", lambda config, tokenizer: [text, text]
    )
    result = optimize(
        model, searching(tmp_path, text, bounds=Bounds(max_kl=0.01), output=None, report=None)
    )
    assert result.text_choice is None


def test_one_text_is_compared_with_none(model: Path, text: Path, tmp_path: Path) -> None:
    result = optimize(
        model, searching(tmp_path, text, bounds=Bounds(max_kl=0.01), output=None, report=None)
    )
    assert result.text_choice is None
