"""The memory and the disk that gradients take are predicted, and refused where they are short."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fakes.tiny_models import VARIANTS, VOCAB_SIZE
from paredown.compress.calibrate import gradient_memory
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.gradient_disk import predict_gradient_disk
from paredown.compress.calibrate.gradient_memory import logits_tokens, predict_gradient_memory
from paredown.compress.calibrate.gradients import collect_gradients
from paredown.compress.calibrate.workspace import open_workspace
from paredown.errors import CapacityError
from paredown.models.check_tensors import linear_modules
from paredown.models.checkpoint import Checkpoint


@pytest.fixture
def llama(tmp_path: Path) -> Checkpoint:
    VARIANTS["llama-gqa"](tmp_path / "in", torch.bfloat16, 0)
    return Checkpoint.open(tmp_path / "in")


@pytest.fixture
def calibration() -> Calibration:
    rng = np.random.default_rng(5)
    return Calibration(windows_NT=rng.integers(0, VOCAB_SIZE, (6, 24)), source="random tokens")


def modules_of(source: Checkpoint) -> list[str]:
    return [module.name for module in linear_modules(source.spec, source.names)]


def test_no_file_is_larger_than_predicted(
    llama: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    most, work = 0, tmp_path / "work"

    def watch(what: str, share: float) -> None:
        nonlocal most
        files = [*work.glob("*.f32"), *work.glob("*.safetensors")]
        most = max(most, sum(file.stat().st_size for file in files))

    modules = modules_of(llama)
    predicted = predict_gradient_disk(llama, calibration, modules)
    with open_workspace(work, "print") as workspace:
        collect_gradients(llama, calibration, modules, workspace, watch)
        watch("the end", 1.0)
        kept = sum(file.stat().st_size for file in work.glob("layer-*.safetensors"))
    assert predicted.sums <= kept <= predicted.sums + 10_000
    assert most <= predicted.total + 10_000
    few = predict_gradient_disk(llama, calibration, modules[:1])
    assert few.activations == predicted.activations
    assert few.sums < predicted.sums


def test_a_full_disk_is_refused_with_the_arithmetic(
    llama: Checkpoint, calibration: Calibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = modules_of(llama)
    needed = predict_gradient_disk(llama, calibration, modules).total
    free = needed - 1
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    with open_workspace(tmp_path / "work", "print") as workspace:
        with pytest.raises(CapacityError, match=r"activations .*, sums .* free in .*--samples"):
            collect_gradients(llama, calibration, modules, workspace, lambda what, share: None)
        assert not list((tmp_path / "work").glob("*.f32"))
        # What an interrupted run left there is used or replaced.
        (tmp_path / "work" / "layer-00000.safetensors").write_bytes(b"x")
        predict_gradient_disk(llama, calibration, modules).require(tmp_path / "work")


def test_too_little_memory_is_refused_with_the_arithmetic(
    llama: Checkpoint, calibration: Calibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = predict_gradient_memory(llama.spec, 24).total
    monkeypatch.setattr(gradient_memory, "available_memory_bytes", lambda: needed)
    predict_gradient_memory(llama.spec, 24).require()
    monkeypatch.setattr(gradient_memory, "available_memory_bytes", lambda: needed - 1)
    with (
        open_workspace(tmp_path / "work", "print") as workspace,
        pytest.raises(CapacityError, match=r"base .*, output .*, layer .* available"),
    ):
        collect_gradients(llama, calibration, [], workspace, lambda what, share: None)


def test_memory_grows_with_what_is_held(llama: Checkpoint) -> None:
    spec = llama.spec
    plain = predict_gradient_memory(spec, 512)
    longer = predict_gradient_memory(spec, 1024)
    assert longer.layer > plain.layer
    deeper = predict_gradient_memory(replace(spec, layers=spec.layers * 10), 512)
    assert deeper == plain, "one layer is in memory at a time"
    assert not spec.is_tied
    tied = replace(spec, output=replace(spec.output, is_tied=True))
    assert predict_gradient_memory(tied, 512).output < plain.output
    wide = replace(spec, vocab_size=1_000_000)
    assert logits_tokens(wide) < logits_tokens(spec)
    assert predict_gradient_memory(wide, 512).output > plain.output
