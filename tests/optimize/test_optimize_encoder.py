"""The search on tiny encoders from end to end: candidates, bounds, the front, the report and the
written proof."""

import argparse
import json
from pathlib import Path

import pytest

from fakes.encoder_folder import classifier, embedder
from fakes.tiny_t5 import make_t5, write_t5
from paredown.cli.verbs import optimize as optimize_verb
from paredown.errors import ConfigError, UnsupportedError
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.evaluate.verify.verification_file import NAME
from paredown.models.checkpoint import Checkpoint
from paredown.optimize.bounds import DEFAULT_MIN_COSINE, Bounds
from paredown.optimize.front import mark_front
from paredown.optimize.optimize import optimize
from paredown.optimize.optimize_config import OptimizeConfig
from paredown.optimize.optimize_result import OptimizeResult

# A cosine that no other numbers reach.
NEVER = Bounds(min_cosine=1 - 1e-12)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return embedder(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return classifier(tmp_path_factory.mktemp("models") / "labels")


def search(model: Path, folder: Path, text: Path, **changes: object) -> OptimizeResult:
    options: dict[str, object] = {
        "output": folder / "small",
        "report": None,
        "num_tokens": 300,
        "text": text,
        "num_rounds": 1,
        "num_threads": 1,
        "calibration": CalibrationConfig(text=text, num_samples=3, num_tokens=24),
    }
    shares: list[float] = []
    result = optimize(
        model, OptimizeConfig(**(options | changes)), lambda what, share: shares.append(share)
    )
    assert shares == sorted(shares)
    assert 0 <= shares[0] <= shares[-1] <= 1
    return result


def test_a_search_measures_vectors_and_writes_the_best(
    encoder: Path, text: Path, tmp_path: Path
) -> None:
    result = search(encoder, tmp_path, text, report=tmp_path / "report")
    found = {one.name: one for one in result.candidates}
    table = "-embedding-int8"  # the table is more than a tenth of the weights
    assert {f"{one}{table}" for one in ("int8", "w8a8", "smoothquant-w8a8")} < set(found)
    assert any(name.startswith("gptq-int4") for name in found)
    assert not result.skipped
    assert found["bf16"].cosine_mean > found[f"int4-g128-g64-g32{table}"].cosine_mean
    assert found[f"int8{table}"].file_bytes < found["bf16"].file_bytes
    for one in result.candidates:
        assert one.perplexity is None
        assert -1 <= one.cosine_least <= one.cosine_mean <= 1 + 1e-6
        assert one.texts_per_s > 0
        assert one.mfu > 0
        assert one.file_bytes > 0
    assert result.reference.cosine_mean == 1
    assert mark_front(result.candidates) == result.candidates
    chosen = found[result.chosen]
    assert chosen.on_front
    assert chosen.cosine_mean >= DEFAULT_MIN_COSINE
    assert result.bounds.min_cosine == DEFAULT_MIN_COSINE

    written = json.loads((tmp_path / "small" / NAME).read_text())
    assert written["recipe"] == result.chosen
    assert written["compressed"]["cosine_mean"] == pytest.approx(chosen.cosine_mean, abs=1e-6)
    assert Checkpoint.open(tmp_path / "small").file_bytes == chosen.file_bytes
    assert json.loads((tmp_path / "report" / "results.json").read_text())["chosen"] == chosen.name
    page = (tmp_path / "report" / "report.html").read_text()
    assert "mean cosine to the original" in page
    assert "perplexity" not in page
    assert all(name in page for name in found)
    assert (tmp_path / "report" / "front.png").stat().st_size > 10_000


def test_what_the_time_does_not_allow_is_told(encoder: Path, text: Path, tmp_path: Path) -> None:
    result = search(encoder, tmp_path, text, minutes=0.001)
    assert len(result.candidates) == 4
    assert {"smoothquant-w8a8-embedding-int8"} < {one.name for one in result.not_tried}
    assert all("s more, of 0 s" in one.reason for one in result.not_tried)
    assert result.chosen is not None


def test_labels_count_for_a_classifier(labels: Path, text: Path, tmp_path: Path) -> None:
    result = search(labels, tmp_path, text, formats=("int8", "int4-g32"))
    assert all(0 <= one.label_agreement <= 1 for one in result.candidates)
    assert result.verification is not None


def test_bounds_of_an_encoder_choose(encoder: Path, text: Path, tmp_path: Path) -> None:
    formats = ("bf16", "int4-g32")
    strict = search(
        encoder, tmp_path / "a", text, formats=formats, bounds=Bounds(min_cosine=0.9999)
    )
    assert strict.chosen == "bf16"
    never = search(encoder, tmp_path / "b", text, formats=formats, bounds=NEVER)
    assert never.chosen is None
    assert never.nearest == "bf16"
    assert [gap.bound for gap in never.missed] == ["--min-cosine"]
    assert not (tmp_path / "b" / "small").exists()
    small = min(strict.candidates, key=lambda one: one.file_bytes)
    bounds = Bounds(max_mb=small.file_bytes / 1e6, min_texts_per_s=0.1)
    least = search(encoder, tmp_path / "c", text, formats=formats, bounds=bounds)
    assert least.chosen == small.name == "int4-g32"
    fast = search(
        encoder, tmp_path / "d", text, formats=formats, bounds=Bounds(min_texts_per_s=1e9)
    )
    assert [gap.bound for gap in fast.missed] == ["--min-texts"]


def test_what_makes_no_sense_is_left_out_and_told(encoder: Path, text: Path, tmp_path: Path):
    result = search(encoder, tmp_path, text, formats=("int8", "mixed-4", "int8-head-int8"))
    assert [one.name for one in result.candidates] == ["int8"]
    assert {one.name for one in result.skipped} == {"mixed-4", "int8-head-int8"}
    with pytest.raises(UnsupportedError, match="can have none of the formats"):
        search(encoder, tmp_path / "b", text, formats=("mixed-4",))


@pytest.mark.parametrize(
    ("bounds", "option"),
    [
        (Bounds(max_quality_loss=0.1), "--max-quality-loss"),
        (Bounds(max_kl=0.1), "--max-kl"),
        (Bounds(min_decode=1.0), "--min-decode"),
        (Bounds(max_first_token_s=1.0), "--max-first-token-s"),
        (Bounds(max_memory_mb=1.0), "--max-memory-mb"),
    ],
)
def test_bounds_of_predictions_are_refused(encoder, tmp_path, text, bounds, option) -> None:
    with pytest.raises(ConfigError, match="an encoder has no such bound") as caught:
        search(encoder, tmp_path, text, bounds=bounds)
    assert option in str(caught.value)


@pytest.mark.parametrize("bounds", [Bounds(min_cosine=0.9), Bounds(min_texts_per_s=1.0)])
def test_bounds_of_vectors_are_refused(model, tmp_path, text, bounds) -> None:
    with pytest.raises(ConfigError, match="a model that generates has no such bound"):
        search(model, tmp_path, text, bounds=bounds)


def test_a_reranker_has_no_cosine_to_be_chosen_by(tmp_path: Path, text: Path) -> None:
    reranker = classifier(tmp_path / "in", num_labels=1)
    with pytest.raises(UnsupportedError, match=r"cosine.*one number for a text.*ranks agree"):
        search(reranker, tmp_path, text)


def test_a_cosine_of_1_is_no_bound() -> None:
    with pytest.raises(ConfigError, match=r"--min-cosine is out of range.*0\.999"):
        Bounds(min_cosine=1.0)


def test_an_encoder_decoder_is_refused(tmp_path: Path, text: Path) -> None:
    write_t5(make_t5("relu-tied"), tmp_path / "in")
    with pytest.raises(UnsupportedError, match="times prompts and steps of one stack"):
        search(tmp_path / "in", tmp_path, text)


def test_the_verb_prints_and_ends_with_what_was_chosen(
    encoder: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> int:
        parser = argparse.ArgumentParser()
        optimize_verb.add_arguments(parser)
        common = ["--text", str(text), "--tokens", "200", "--rounds", "1", "--threads", "1"]
        folder = ["-o", str(tmp_path / f"out{len(arguments)}"), "--no-report"]
        formats = ["--formats", "int8"]
        return optimize_verb.run(
            parser.parse_args([str(encoder), *folder, *formats, *common, *arguments])
        )

    assert run() == 0
    out = capsys.readouterr().out
    assert "texts/s" in out
    assert "verified" in out
    assert run("--min-cosine", str(NEVER.min_cosine), "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["chosen"] is None
    assert found["candidates"][0]["texts_per_s"] > 0
