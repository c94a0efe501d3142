"""Gradients layer by layer, against autograd through the whole decoder."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from fakes.tiny_models import DECODER_VARIANTS, VARIANTS, VOCAB_SIZE
from paredown.compress.calibrate import gradient_memory
from paredown.compress.calibrate import gradients as room
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.gradients import (
    collect_gradients,
    gradient_fingerprint,
    gradient_workspace_path,
)
from paredown.compress.calibrate.workspace import Workspace, open_workspace
from paredown.compress.prune.method import Gradients
from paredown.errors import CheckpointError, ConfigError
from paredown.models.check_tensors import linear_modules
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.stored_rows import stored_rows

MODELS = [
    "llama-gqa",
    "qwen2-tied",
    "qwen2-moe",
    "gpt2",
    "gpt-neox",
    "gemma2",
    "opt-untied-no-biases",
    "phi",
]


def quiet(what: str, share: float) -> None:
    assert what
    assert 0 <= share <= 1


def windows(num: int = 3, length: int = 11) -> Calibration:
    ids_NT = np.random.default_rng(0).integers(0, VOCAB_SIZE, (num, length))
    return Calibration(windows_NT=ids_NT, source="random tokens")


def open_model(name: str, folder: Path) -> Checkpoint:
    writers = VARIANTS | DECODER_VARIANTS
    writers[name](folder, torch.float32, 0)
    return Checkpoint.open(folder)


def modules_of(source: Checkpoint) -> list[str]:
    return [module.name for module in linear_modules(source.spec, source.names)]


def whole_model(source: Checkpoint, calibration: Calibration) -> dict[str, Gradients]:
    """The gradients of each window's mean loss, all at once."""
    decoder = Decoder.from_checkpoint(source).requires_grad_()
    seen: dict[str, list[torch.Tensor]] = {}
    for ids_T in torch.from_numpy(calibration.windows_NT):
        decoder.zero_grad(set_to_none=True)
        logits_TV = decoder(ids_T[None])[0]
        functional.cross_entropy(logits_TV[:-1], ids_T[1:]).backward()
        for layer in range(source.spec.num_layers):
            roles = source.spec.linear_shapes(layer)
            for name, fused in source.names.modules(roles, layer).items():
                own = [decoder.layers[layer].get_parameter(f"{role}.weight") for role in fused]
                parts = [torch.zeros_like(one) if one.grad is None else one.grad for one in own]
                num_blocks = source.names.num_blocks(fused[0], source.spec.layers[layer])
                seen.setdefault(name, []).append(stored_rows(parts, num_blocks).clone())
        if not source.spec.is_tied:
            gradient_VD = decoder.output.weight.grad
            assert gradient_VD is not None
            seen.setdefault(source.names.output, []).append(gradient_VD.clone())
    stacked = {name: torch.stack(parts).double() for name, parts in seen.items()}
    return {
        name: Gradients(
            mean_OI=all_NOI.abs().mean(0),
            square_OI=all_NOI.square().mean(0),
            largest_OI=all_NOI.abs().amax(0),
        )
        for name, all_NOI in stacked.items()
    }


def assert_alike(found: Gradients, expected: Gradients) -> None:
    for own, other in (
        (found.mean_OI, expected.mean_OI),
        (found.square_OI.sqrt(), expected.square_OI.sqrt()),
        (found.largest_OI, expected.largest_OI),
    ):
        scale = float(other.max()) + 1e-12
        torch.testing.assert_close(own.double() / scale, other / scale, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_they_are_those_of_the_whole_model(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradient_memory, "_LOGITS_VALUES", 4 * VOCAB_SIZE)
    source, calibration = open_model(name, tmp_path / "model"), windows()
    modules = modules_of(source)
    with open_workspace(tmp_path / "work", "print") as workspace, torch.inference_mode():
        found = collect_gradients(source, calibration, modules, workspace, quiet)
        assert sorted(found) == sorted(modules)
        expected = whole_model_outside(source, calibration)
        for module in modules:
            assert_alike(found[module], expected[module])
    assert not (tmp_path / "work").exists()


def whole_model_outside(source: Checkpoint, calibration: Calibration) -> dict[str, Gradients]:
    with torch.inference_mode(False), torch.enable_grad():
        return whole_model(source, calibration)


def test_only_the_modules_asked_for_are_kept(tmp_path: Path) -> None:
    source = open_model("llama-gqa", tmp_path / "model")
    asked = [one for one in modules_of(source) if "1.mlp.down" in one]
    with open_workspace(tmp_path / "work", "print") as workspace:
        found = collect_gradients(source, windows(), asked, workspace, quiet)
        assert list(found) == asked
        assert len(found) == 1
        assert found.get("another") is None


class KilledError(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("killed_at", range(6))
def test_a_killed_run_goes_on_and_ends_alike(
    killed_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, calibration = open_model("llama-gqa", tmp_path / "model"), windows()
    modules = modules_of(source)
    with open_workspace(tmp_path / "straight", "print") as workspace:
        straight = collect_gradients(source, calibration, modules, workspace, quiet)
        expected = {name: straight[name] for name in modules}
    calls = 0

    def dying(what: str, share: float) -> None:
        nonlocal calls
        if calls == killed_at:
            raise KilledError
        calls += 1

    def run(report: object) -> dict[str, Gradients]:
        with open_workspace(tmp_path / "work", "print") as workspace:
            found = collect_gradients(source, calibration, modules, workspace, report)  # type: ignore[arg-type]
            return {name: found[name] for name in modules}

    try:
        run(dying)
    except KilledError:
        assert (tmp_path / "work").is_dir()
    passes = []
    load = room.load_layer
    monkeypatch.setattr(room, "load_layer", lambda *one: passes.append(one[1]) or load(*one))
    again = run(quiet)
    if 4 <= killed_at < 6:
        assert len(passes) == 6 - killed_at, "finished steps are not done again"
    for name in modules:
        assert torch.equal(again[name].mean_OI, expected[name].mean_OI)
        assert torch.equal(again[name].largest_OI, expected[name].largest_OI)


def test_another_text_or_choice_has_another_fingerprint(tmp_path: Path) -> None:
    source = open_model("llama-gqa", tmp_path / "model")
    prints = {
        gradient_fingerprint(source, windows(), ["a", "b"]),
        gradient_fingerprint(source, windows(2), ["a", "b"]),
        gradient_fingerprint(source, windows(), ["a"]),
    }
    assert len(prints) == 3
    assert gradient_fingerprint(source, windows(), ["b", "a"]) in prints
    assert gradient_workspace_path(Path("out")).name == ".out.gradients"


def test_windows_need_a_next_token(tmp_path: Path) -> None:
    source = open_model("llama-gqa", tmp_path / "model")
    with pytest.raises(ConfigError, match="no next token"):
        collect_gradients(
            source, windows(2, 1), [], Workspace(path=tmp_path, fingerprint=""), quiet
        )


def test_gradients_that_pass_the_largest_float_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_model("llama-gqa", tmp_path / "model")

    def overflowing(logits: torch.Tensor, ids: torch.Tensor, reduction: str) -> torch.Tensor:
        return functional.nll_loss(logits * 1e30, ids, reduction=reduction)

    monkeypatch.setattr(room.functional, "cross_entropy", overflowing)
    with (
        pytest.raises(CheckpointError, match="not finite"),
        open_workspace(tmp_path / "work", "print") as workspace,
    ):
        collect_gradients(source, windows(), modules_of(source), workspace, quiet)
