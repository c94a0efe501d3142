"""Recipes of several stages: each goes from a folder to the next, and a killed run goes on."""

import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest
import torch

from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import make_model
from paredown.compress.recipe_names import find_recipe
from paredown.errors import CheckpointError, ConfigError, UnsupportedError
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.evaluate.verify.verification_file import NAME
from paredown.jobs.compress import compress_and_verify
from paredown.jobs.stages import stages_path
from paredown.jobs.verify_config import VerifyConfig
from paredown.models.checkpoint import Checkpoint

SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3}
WHOLE = "prune-ffn-50-prune-layers-1-wanda-50-recover-8192-gptq-int4-g32"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    config = SIZES | {"initializer_range": 0.15}
    make_model("llama", torch.float32, 0, **config).save_pretrained(folder)
    write_byte_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "text.txt"
    path.write_text("It was the best of times, it was the worst of times. " * 40)
    return path


def run(model: Path, text: Path, output: Path, recipe: str, **changes):
    options = {
        "calibration": CalibrationConfig(text=text, num_samples=4, num_tokens=32),
        "verify": VerifyConfig(text=text, num_tokens=100),
        "num_threads": 1,
    } | changes
    return compress_and_verify(model, output, recipe, **options)


def test_cut_prune_recover_and_quantize(model: Path, text: Path, tmp_path: Path) -> None:
    made = run(model, text, tmp_path / "out", WHOLE)
    written = Checkpoint.open(tmp_path / "out")
    assert written.spec.num_layers == 2
    assert written.spec.layers[0].mlp.size == 64
    assert len(written.kept_layers) == 2
    assert made.written.name == WHOLE
    assert made.written.num_quantized == 14
    assert made.written.sparsity.share >= 0.5
    assert set(written.pruned) == set(written.names.layer_modules(written.spec))
    assert any("recovered on 8," in note for note in made.written.notes)
    proof = json.loads((tmp_path / "out" / NAME).read_text())
    assert [one["layer"] for one in proof["layer_errors"]] == [0, 1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_no_stage_fills_the_zeros_of_another(model: Path, text: Path, tmp_path: Path) -> None:
    """Training and rounding keep the zeros of 2 of 4 (C07)."""
    run(model, text, tmp_path / "sparse", "magnitude-2of4", verify=None)
    recipe = "magnitude-2of4-recover-8192-gptq-int4-g32-asym"
    run(model, text, tmp_path / "out", recipe, verify=None)
    before, after = Checkpoint.open(tmp_path / "sparse"), Checkpoint.open(tmp_path / "out")
    for layer in range(3):
        for role in ("q", "o", "up", "down"):
            zeros_OI = before.linear(role, layer).dequantize() == 0
            values_OI = after.linear(role, layer).dequantize()
            assert (values_OI[zeros_OI] == 0).all(), (role, layer)
            assert (values_OI != before.linear(role, layer).dequantize()).any()


def test_a_cut_alone_is_an_ordinary_checkpoint(model: Path, text: Path, tmp_path: Path) -> None:
    made = run(model, text, tmp_path / "out", "prune-layers-1")
    assert made.written.num_quantized == 0
    assert made.written.sparsity is None
    assert Checkpoint.open(tmp_path / "out").spec.num_layers == 2


@pytest.mark.parametrize(
    ("recipe", "error", "says"),
    [
        ("prune-layers-3", ConfigError, "last layer"),
        ("prune-experts-50", UnsupportedError, "no experts"),
        ("prune-layers-2-prune-layers-1", ConfigError, "last layer"),
        ("prune-ffn-50-gptq-int4-g128", UnsupportedError, "do not divide"),
        ("prune-ffn-100", ConfigError, "outside"),
        ("wanda-3of7", ConfigError, "columns that do not come in 7s"),
        ("wanda-50-aqlm-1x8-g4", UnsupportedError, "would fill the zeros"),
        ("wanda-50-recover-10-int8", ConfigError, "shorter than one step"),
    ],
)
def test_bad_recipes_are_refused_before_any_work(
    model: Path, text: Path, tmp_path: Path, monkeypatch, recipe, error, says
) -> None:
    monkeypatch.setattr("paredown.compress.cut.cut.walk", None)
    monkeypatch.setattr("paredown.compress.compress.walk", None)
    with pytest.raises(error, match=says):
        run(model, text, tmp_path / "out", recipe)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", ["layerz", "re:layerz.*", "model.layers.0.mlp.gate"])
def test_a_target_that_fits_nothing_is_an_error(
    model: Path, text: Path, tmp_path: Path, target: str
) -> None:
    recipe = tmp_path / "mine.yaml"
    step = {"method": "magnitude", "pattern": 50, "targets": [target]}
    recipe.write_text(json.dumps({"steps": [step]}))
    with pytest.raises(ConfigError, match=target.replace(".", r"\.").replace("*", r"\*")):
        run(model, text, tmp_path / "out", str(recipe))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("role", ["head", "embedding"])
def test_tied_tables_are_not_pruned(tmp_path: Path, text: Path, role: str) -> None:
    folder = tmp_path / "tied"
    tied = SIZES | {"tie_word_embeddings": True}
    make_model("llama", torch.float32, 0, **tied).save_pretrained(folder)
    write_byte_tokenizer(folder)
    recipe = tmp_path / "mine.yaml"
    step = {"method": "magnitude", "pattern": 50, "targets": [role]}
    recipe.write_text(json.dumps({"steps": [step]}))
    with pytest.raises(UnsupportedError, match="not pruned"):
        run(folder, text, tmp_path / "out", str(recipe))


def _run_until(model: Path, text: Path, output: Path, share: float) -> None:
    def kill(what: str, now: float) -> None:
        if now >= share:
            os.kill(os.getpid(), signal.SIGKILL)

    torch.set_num_threads(1)
    run(model, text, output, WHOLE, verify=None, on_progress=kill)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_a_killed_run_goes_on_to_the_same_bytes(
    model: Path, text: Path, tmp_path: Path, share: float
) -> None:
    run(model, text, tmp_path / "whole" / "out", WHOLE, verify=None)
    output = tmp_path / "killed" / "out"
    process = multiprocessing.get_context("spawn").Process(
        target=_run_until, args=(model, text, output, share)
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not output.exists()
    run(model, text, output, WHOLE, verify=None)
    weights = [
        (tmp_path / name / "out" / "model.safetensors").read_bytes() for name in ("whole", "killed")
    ]
    assert weights[0] == weights[1]
    assert [path.name for path in output.parent.iterdir()] == ["out"]


def interrupted_in_recovery(model: Path, text: Path, output: Path, monkeypatch) -> None:
    def interrupt(*args, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("paredown.jobs.run_recipe.recover", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(model, text, output, WHOLE, verify=None)


def test_finished_stages_are_not_made_again(
    model: Path, text: Path, tmp_path: Path, monkeypatch
) -> None:
    output = tmp_path / "out"
    interrupted_in_recovery(model, text, output, monkeypatch)
    kept = sorted(path.name for path in stages_path(output).iterdir())
    assert kept == ["0-cut", "0-prune", "lock", "state.json"]
    monkeypatch.setattr("paredown.jobs.run_recipe.cut", None)
    run(model, text, output, WHOLE, verify=None)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_error_that_would_occur_again_leaves_nothing(
    model: Path, text: Path, tmp_path: Path, monkeypatch
) -> None:
    def fail(*args, **options):
        raise CheckpointError("broken", seen=1, remedy="None.")

    monkeypatch.setattr("paredown.jobs.run_recipe.recover", fail)
    with pytest.raises(CheckpointError):
        run(model, text, tmp_path / "out", WHOLE, verify=None)
    assert list(tmp_path.iterdir()) == []


def test_stages_of_another_recipe_are_not_taken(
    model: Path, text: Path, tmp_path: Path, monkeypatch
) -> None:
    output = tmp_path / "out"
    interrupted_in_recovery(model, text, output, monkeypatch)
    run(model, text, output, "prune-layers-2", verify=None)
    assert Checkpoint.open(output).spec.num_layers == 1


def test_shares_follow_what_layers_lose(model: Path, text: Path, tmp_path: Path) -> None:
    made = run(model, text, tmp_path / "out", "wanda-sensitivity-50", verify=None)
    shares = made.written.sparsity.as_json()["modules"]
    assert made.written.sparsity.share == pytest.approx(0.5, abs=1e-3)
    by_layer = {name.split(".")[2]: share for name, share in shares.items()}
    assert len(set(by_layer.values())) > 1


def test_pruning_ends_at_the_loss_that_is_allowed(model: Path, text: Path, tmp_path: Path) -> None:
    shares = []
    for limit in ("0.001", "0.01", "0.1"):
        made = run(model, text, tmp_path / limit, f"sparsegpt-90-to-{limit}", verify=None)
        sparsity = made.written.sparsity
        shares.append(sparsity.share if sparsity else 0.0)
    assert shares == sorted(shares)
    assert 0 < shares[-1] <= 0.9
    assert find_recipe("sparsegpt-90-to-0.1").needs_calibration


def test_pruning_ends_at_the_divergence_that_is_measured(
    model: Path, text: Path, tmp_path: Path
) -> None:
    made = run(model, text, tmp_path / "out", "wanda-90-to-kl-0.02-int8", verify=None)
    (note,) = (note for note in made.written.notes if note.startswith("pruned"))
    assert "0.02, measured on" in note
    assert 0 < made.written.sparsity.share < 0.9
    assert f"{made.written.sparsity.share:.2%}" in note
    (pattern,) = set(Checkpoint.open(tmp_path / "out").pruned.values())
    run(model, text, tmp_path / "same", f"wanda-{pattern}-int8", verify=None)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("out", "same")]
    assert weights[0] == weights[1]


def test_a_divergence_that_a_cut_has_already_leaves_nothing_to_prune(
    model: Path, text: Path, tmp_path: Path
) -> None:
    recipe = "prune-layers-1-magnitude-90-to-kl-0.000001"
    made = run(model, text, tmp_path / "out", recipe)
    assert made.written.sparsity is None
    assert any(note.startswith("nothing pruned") for note in made.written.notes)
    proof = json.loads((tmp_path / "out" / NAME).read_text())
    assert any(note.startswith("nothing pruned") for note in proof["notes"])


def test_budgets_are_measured_before_codes_are_trained(
    model: Path, text: Path, tmp_path: Path
) -> None:
    recipe = "magnitude-sensitivity-50-qad-int8-8192"
    made = run(model, text, tmp_path / "out", recipe, verify=None)
    assert made.written.sparsity.share == pytest.approx(0.5, abs=1e-2)


def test_one_threshold_takes_more_from_some_layers(model: Path, text: Path, tmp_path: Path) -> None:
    made = run(model, text, tmp_path / "out", "magnitude-global-50", verify=None)
    shares = made.written.sparsity.as_json()["modules"]
    assert made.written.sparsity.share == pytest.approx(0.5, abs=1e-3)
    assert max(shares.values()) - min(shares.values()) > 0.01


def test_cutting_a_pruned_folder_keeps_or_tells(model: Path, text: Path, tmp_path: Path) -> None:
    run(model, text, tmp_path / "pruned", "magnitude-10", verify=None)
    kept = tmp_path / "kept.yaml"
    kept.write_text("steps: [{method: layers, num: 1, compensation: null}]")
    run(tmp_path / "pruned", text, tmp_path / "kept", str(kept), verify=None)
    written = Checkpoint.open(tmp_path / "kept")
    modules = written.names.layer_modules(written.spec)
    assert written.pruned == dict.fromkeys(modules, "10")
    for role in ("q", "o", "down"):
        assert (written.linear(role, 1).dequantize() == 0).mean() == pytest.approx(0.1, abs=1e-3)
    made = run(tmp_path / "pruned", text, tmp_path / "filled", "prune-ffn-50", verify=None)
    assert any("compensation filled the zeros" in note for note in made.written.notes)
    left = Checkpoint.open(tmp_path / "filled").pruned
    assert left
    assert not any("down_proj" in name for name in left)


def test_codebooks_are_refused_for_a_pruned_folder(model: Path, text: Path, tmp_path: Path) -> None:
    run(model, text, tmp_path / "pruned", "magnitude-10", verify=None)
    with pytest.raises(UnsupportedError, match="would fill the zeros"):
        run(tmp_path / "pruned", text, tmp_path / "out", "aqlm-1x8-g4")
    assert not (tmp_path / "out").exists()
