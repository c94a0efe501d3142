"""The disk that activations of a calibration take is predicted, and refused where it is short."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from fakes.tiny_models import VOCAB_SIZE, make_model
from paredown.compress.calibrate.activation_file import ActivationFile
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.workspace import workspace_path
from paredown.compress.compress import compress
from paredown.errors import CapacityError
from paredown.models.checkpoint import Checkpoint

RECIPE = "gptq-int4-g32"
# Three files of 6 windows of 24 tokens, 64 float32 numbers each.
NEEDED = 3 * 6 * 24 * 64 * 4


@pytest.fixture
def calibration() -> Calibration:
    rng = np.random.default_rng(5)
    return Calibration(windows_NT=rng.integers(0, VOCAB_SIZE, (6, 24)), source="random tokens")


@pytest.fixture
def llama(tmp_path: Path) -> Checkpoint:
    make_model("llama", torch.bfloat16, 4).save_pretrained(tmp_path / "in")
    return Checkpoint.open(tmp_path / "in")


@pytest.fixture
def set_free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[Path]]:
    """Fakes the free space; returns where it is asked for."""

    def fake(free: int) -> list[Path]:
        asked: list[Path] = []

        def disk_usage(folder: Path) -> SimpleNamespace:
            asked.append(folder)
            return SimpleNamespace(free=free)

        monkeypatch.setattr(shutil, "disk_usage", disk_usage)
        return asked

    return fake


def test_it_is_refused_before_work_with_the_arithmetic(
    llama: Checkpoint, calibration: Calibration, tmp_path: Path, set_free
) -> None:
    asked = set_free(NEEDED - 1)
    words = r"6 x 24 tokens of 192 .*110\.59 kB of 110\.59 kB free in .*--samples"
    with pytest.raises(CapacityError, match=words):
        compress(llama, tmp_path / "not" / "there" / "out", RECIPE, calibration=calibration)
    assert asked == [tmp_path]
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_what_is_predicted_is_what_is_there_at_the_peak(
    llama: Checkpoint,
    calibration: Calibration,
    tmp_path: Path,
    set_free,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_free(NEEDED)
    sizes = []
    write = ActivationFile.write

    def watched(self: ActivationFile, batches: Iterable[Tensor], *, lasting: bool = True) -> None:
        write(self, batches, lasting=lasting)
        sizes.append(sum(file.stat().st_size for file in self.path.parent.glob("*.f32")))

    monkeypatch.setattr(ActivationFile, "write", watched)
    result = compress(llama, tmp_path / "out", RECIPE, calibration=calibration)
    assert max(sizes) == result.predicted_disk_bytes == NEEDED


def test_what_an_interrupted_run_left_counts(
    llama: Checkpoint, calibration: Calibration, tmp_path: Path, set_free
) -> None:
    set_free(NEEDED // 2)
    with pytest.raises(CapacityError):
        compress(llama, tmp_path / "out", RECIPE, calibration=calibration)
    workspace = workspace_path(tmp_path / "out")
    workspace.mkdir()
    (workspace / "inputs-00000.f32").write_bytes(bytes(NEEDED // 2))
    compress(llama, tmp_path / "out", RECIPE, calibration=calibration)


def test_without_calibration_nothing_is_asked(llama: Checkpoint, tmp_path: Path, set_free) -> None:
    asked = set_free(0)
    assert compress(llama, tmp_path / "out", "int4-g32").predicted_disk_bytes is None
    assert not asked
