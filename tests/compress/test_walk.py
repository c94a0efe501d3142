"""Calibration: what flows is what the plain decoder computes, and a killed run ends in the same
bytes."""

import json
import multiprocessing
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from drivers.killed_compression import compress_until
from drivers.seen_by_rtn import SeenByRTN
from fakes.tiny_models import VOCAB_SIZE, make_model
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.workspace import workspace_path
from paredown.compress.compress import compress
from paredown.compress.quantize.rtn import RTN
from paredown.compress.recipe import Recipe
from paredown.compress.steps import QuantizeStep
from paredown.errors import CapacityError, CheckpointError, ConfigError, OutputError
from paredown.formats.table import FORMATS, STATIC_FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.points import INPUT_POINTS

FAMILIES = ("llama", "qwen3", "opt", "mistral")
NUM_LAYERS = 2


def recipe(name: str = "int4-g32", head: str | None = None) -> Recipe:
    steps = [QuantizeStep(quantizer=SeenByRTN(), spec=FORMATS[name])]
    if head is not None:
        steps.append(QuantizeStep(quantizer=SeenByRTN(), spec=FORMATS[head], targets=("head",)))
    return Recipe(name=f"seen-{name}", steps=tuple(steps))


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    rng = np.random.default_rng(5)
    return Calibration(windows_NT=rng.integers(0, VOCAB_SIZE, (6, 24)), source="random tokens")


@pytest.fixture(params=FAMILIES)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Checkpoint:
    make_model(request.param, torch.float32, 4).save_pretrained(tmp_path / "in")
    return Checkpoint.open(tmp_path / "in")


@pytest.fixture
def llama(tmp_path: Path) -> Checkpoint:
    make_model("llama", torch.float32, 4).save_pretrained(tmp_path / "in")
    return Checkpoint.open(tmp_path / "in")


def naive_moments(
    source: Checkpoint, written: Checkpoint, calibration: Calibration, true_sequential: bool
) -> Iterator[tuple[str, Tensor]]:
    """By module: the whole model run once for each group of linear layers, with every layer before
    it as written and every one after it as in the source."""
    decoder = Decoder.from_checkpoint(source)
    ids = torch.from_numpy(calibration.windows_NT)
    groups = (("q", "k", "v"), ("o",), ("gate", "up"), ("down",))
    for index, layer in enumerate(decoder.layers):
        captured: dict[str, Tensor] = {}
        waiting = []
        for group in groups:
            roles = [role for role in group if role in source.spec.linear_shapes(0)]

            def tap(point: str, x: Tensor, captured: dict[str, Tensor] = captured) -> Tensor:
                captured[point] = x.double().flatten(0, 1)
                return x

            layer.tap = tap
            decoder(ids)
            for role in roles:
                x_NI = captured[INPUT_POINTS[role]]
                yield source.linear_name(role, index), 2 * x_NI.T @ x_NI / len(x_NI)
                waiting.append(role)
            if true_sequential or group == groups[-1]:
                for role in waiting:
                    stored = written.linear(role, index).at_work()
                    layer.get_submodule(role).weight.data = torch.from_numpy(stored)
                waiting = []
    final: dict[str, Tensor] = {}

    def head_tap(point: str, x: Tensor) -> Tensor:
        final[point] = x.double().flatten(0, 1)
        return x

    decoder.tap = head_tap
    decoder(ids)
    x_NI = final["output_input"]
    yield source.names.output, 2 * x_NI.T @ x_NI / len(x_NI)


@pytest.mark.parametrize("true_sequential", [True, False])
def test_moments_are_of_the_quantized_model(
    source: Checkpoint, calibration: Calibration, true_sequential: bool, tmp_path: Path
) -> None:
    calibration = Calibration(
        windows_NT=calibration.windows_NT, source="", true_sequential=true_sequential
    )
    SeenByRTN.seen.clear()
    compress(source, tmp_path / "out", recipe(head="int8"), calibration=calibration)
    written = Checkpoint.open(tmp_path / "out")
    expected = list(naive_moments(source, written, calibration, true_sequential))
    assert len(SeenByRTN.seen) == len(expected)
    for moments, (name, hessian_II) in zip(SeenByRTN.seen, expected, strict=True):
        assert moments.num_rows == calibration.windows_NT.size
        difference = (moments.hessian_II.double() - hessian_II).norm() / hessian_II.norm()
        assert float(difference) < 1e-5, name


def test_calibrated_round_to_nearest_is_the_plain_one(
    source: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    result = compress(source, tmp_path / "a", recipe(head="int8"), calibration=calibration)
    compress(source, tmp_path / "b", "int4-g32-head-int8")
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert result.calibration == "random tokens"
    assert not workspace_path(tmp_path / "a").exists()


def test_a_killed_run_goes_on_to_the_same_bytes(
    llama: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    compress(llama, tmp_path / "whole", recipe(head="int8"), calibration=calibration)
    output = tmp_path / "out"
    # Its server imports the package once, and runs nothing that a fork would lose.
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["paredown.compress.compress"])
    finished = []
    for share in (0.01, 0.2, 0.4, 0.55, 0.7, 0.96):
        job = (llama.path, output, recipe(head="int8"), calibration, share)
        process = forks.Process(target=compress_until, args=job)
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert not output.exists()
        state = workspace_path(output) / "state.json"
        finished.append(json.loads(state.read_text())["num_finished"] if state.exists() else 0)
    assert finished == sorted(finished)
    assert finished[0] == 0
    assert finished[-1] == NUM_LAYERS + 1
    seen = len(SeenByRTN.seen)
    result = compress(llama, output, recipe(head="int8"), calibration=calibration)
    assert len(SeenByRTN.seen) == seen
    assert any("interrupted" in note for note in result.notes)
    for name in ("model.safetensors", "config.json"):
        assert (output / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not workspace_path(output).exists()


def test_another_recipe_begins_anew(
    llama: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    def interrupt(what: str, share: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    output = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        compress(llama, output, recipe(), calibration=calibration, on_progress=interrupt)
    assert workspace_path(output).exists()
    result = compress(llama, output, recipe("int4-g32-asym"), calibration=calibration)
    assert result.notes == ()
    compress(llama, tmp_path / "plain", "int4-g32-asym")
    written, plain = output / "model.safetensors", tmp_path / "plain" / "model.safetensors"
    assert written.read_bytes() == plain.read_bytes()


@pytest.mark.parametrize("changes", [{"floats": "fp16"}, {"kv_cache": "int8-static"}])
def test_a_recipe_with_the_same_steps_is_another(
    llama: Checkpoint, calibration: Calibration, tmp_path: Path, changes: dict[str, Any]
) -> None:
    def interrupt(what: str, share: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    output, whole = tmp_path / "out", tmp_path / "whole"
    with pytest.raises(KeyboardInterrupt):
        compress(llama, output, recipe(), calibration=calibration, on_progress=interrupt)
    changed = replace(recipe(), **changes)
    result = compress(llama, output, changed, calibration=calibration)
    assert result.notes == ()
    compress(llama, whole, changed, calibration=calibration)
    for name in ("model.safetensors", "config.json"):
        assert (output / name).read_bytes() == (whole / name).read_bytes()


def test_a_damaged_workspace_is_not_trusted(
    llama: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    folder = workspace_path(output)
    folder.mkdir()
    for text in ("{", "[]", '{"num_finished": 1}'):
        (folder / "state.json").write_text(text)
        result = compress(llama, output, recipe(), calibration=calibration, overwrite=True)
        assert result.notes == ()
        folder.mkdir()


def test_a_full_disk_at_the_end_costs_no_layer(
    llama: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    def full(folder: Path, notes: tuple[str, ...]) -> None:
        raise OutputError("the disk is full", seen=folder, remedy="Free some space.")

    output = tmp_path / "out"
    with pytest.raises(OutputError, match="disk is full"):
        compress(llama, output, recipe(), calibration=calibration, finish=full)
    assert not output.exists()
    seen = len(SeenByRTN.seen)
    compress(llama, output, recipe(), calibration=calibration)
    assert len(SeenByRTN.seen) == seen


def test_one_process_at_a_time(llama: Checkpoint, calibration: Calibration, tmp_path: Path) -> None:
    def again(what: str, share: float) -> None:
        compress(llama, tmp_path / "out", recipe(), calibration=calibration)

    with pytest.raises(OutputError, match="another process"):
        compress(llama, tmp_path / "out", recipe(), calibration=calibration, on_progress=again)


def test_bad_input_is_named(calibration: Calibration, tmp_path: Path) -> None:
    model = make_model("llama", torch.float32, 4)
    with torch.no_grad():
        model.model.layers[1].mlp.gate_proj.weight[0, 0] = float("inf")
    model.save_pretrained(tmp_path / "infinite")
    infinite = Checkpoint.open(tmp_path / "infinite")
    told: list[str] = []
    with pytest.raises(CheckpointError, match=r"layers\.1\.mlp\.gate_proj"):
        compress(
            infinite,
            tmp_path / "out",
            recipe(),
            calibration=calibration,
            on_progress=lambda what, share: told.append(what),
        )
    # Before any layer was calibrated.
    assert told == []
    with torch.no_grad():
        model.model.layers[1].mlp.gate_proj.weight[0, 0] = 1.0
        model.model.layers[0].mlp.down_proj.weight[:] = 3e38
    model.save_pretrained(tmp_path / "large")
    with pytest.raises(CheckpointError, match="layer 1, attention_input"):
        compress(
            Checkpoint.open(tmp_path / "large"), tmp_path / "out", recipe(), calibration=calibration
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["infinite", "large"]


def test_calibration_is_asked_for(llama: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="calibration text"):
        compress(llama, tmp_path / "out", recipe())


def test_memory_is_predicted_first(
    llama: Checkpoint, calibration: Calibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "paredown.compress.calibrate.memory.available_memory_bytes", lambda: 100 << 20
    )
    with pytest.raises(CapacityError, match=r"base 524.*--calibration-tokens"):
        compress(llama, tmp_path / "out", recipe(), calibration=calibration)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_static_inputs_have_the_scale_of_the_largest(
    llama: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    spec = STATIC_FORMATS["w8a8-static"]
    steps = (QuantizeStep(quantizer=RTN(), spec=spec),)
    compress(llama, tmp_path / "out", Recipe(name="static", steps=steps), calibration=calibration)
    written = Checkpoint.open(tmp_path / "out")
    decoder = Decoder.from_checkpoint(llama)
    largest: dict[str, float] = {}

    def tap(point: str, x: Tensor) -> Tensor:
        largest[point] = float(x.abs().max())
        return x

    decoder.layers[0].tap = tap
    decoder(torch.from_numpy(calibration.windows_NT))
    weight = written.linear("q", 0)
    assert weight.spec == spec
    assert weight.input_scale == pytest.approx(largest["attention_input"] / 127.5, rel=1e-5)
    assert written.linear("v", 0).input_scale == weight.input_scale
