"""Training of codes brings a quantized model nearer to its original, keeps pruned zeros, and a
stopped run ends in the bytes of an unbroken one (D09)."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from drivers.tiny_training import config, random_rows
from fakes.small_tokenizers import byte_level
from fakes.tiny_models import make_model
from paredown.compress.compress import compress
from paredown.compress.steps import TrainStep
from paredown.distill.losses.cross_entropy import CrossEntropy
from paredown.distill.losses.kl import KL
from paredown.distill.quantized.quantized_decoder import quantized_decoder
from paredown.distill.quantized.train_config import quantized_train_config
from paredown.distill.quantized.train_quantized import (
    QuantizedTrainConfig,
    QuantizedTrainResult,
    TrainedFrom,
    train_quantized,
)
from paredown.distill.quantized.trained_grids import TrainedGrids
from paredown.distill.training_folder import training_path
from paredown.errors import CapacityError, ConfigError, UnsupportedError
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder

ROWS = random_rows(240, 16)
SETTINGS = QuantizedTrainConfig(
    train=config(30 * 128, batch_tokens=128, learning_rate=3e-3),
)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("original")
    make_model("llama", torch.bfloat16, 4).save_pretrained(folder)
    byte_level().save(str(folder / "tokenizer.json"))
    return Checkpoint.open(folder)


@pytest.fixture(scope="module")
def start(original: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("start") / "int2"
    compress(original, folder, "int2-g32")
    return Checkpoint.open(folder)


def train(
    models: TrainedFrom, output: Path, settings: QuantizedTrainConfig, stop_at: float = 2.0
) -> QuantizedTrainResult:
    def stop(what: str, share: float) -> None:
        if share >= stop_at:
            raise KeyboardInterrupt

    return train_quantized(models, output, settings, ROWS, on_progress=stop)


def divergence(checkpoint: Checkpoint, original: Checkpoint) -> float:
    batch = torch.from_numpy(random_rows(8, 16, seed=8).tokens_NT)
    student = quantized_decoder(checkpoint, TrainedGrids(rule="fixed"))
    with torch.no_grad():
        log_p = Decoder.from_checkpoint(original)(batch).log_softmax(-1)
        log_q = student(batch).log_softmax(-1)
    return float((log_p.exp() * (log_p - log_q)).sum(-1).mean())


@pytest.mark.parametrize(
    "grids",
    [
        TrainedGrids(),
        TrainedGrids(rule="fixed"),
        TrainedGrids(rule="minmax"),
        TrainedGrids(trains_codes=False),
    ],
    ids=["learned", "fixed", "minmax", "scales"],
)
def test_the_model_comes_nearer_to_its_original(
    grids: TrainedGrids, original: Checkpoint, start: Checkpoint, tmp_path: Path
) -> None:
    models = TrainedFrom(start=start, original=original, floats=original)
    rate = 3e-3 if grids.trains_codes else 2e-2
    numbers = replace(SETTINGS.train, learning_rate=rate)
    done = train(models, tmp_path / "out", replace(SETTINGS, grids=grids, train=numbers))
    assert divergence(Checkpoint.open(done.path), original) < 0.95 * divergence(start, original)
    assert (done.moved_share > 0) == grids.trains_codes
    assert done.training.num_tokens == 30 * 128


def test_a_stopped_run_ends_in_the_same_bytes(
    original: Checkpoint, start: Checkpoint, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, train=replace(SETTINGS.train, save_every_s=0.0))
    models = TrainedFrom(start=start, original=original, floats=original)
    train(models, tmp_path / "whole", settings)
    with pytest.raises(KeyboardInterrupt):
        train(models, tmp_path / "out", settings, stop_at=0.5)
    assert not (tmp_path / "out").exists()
    assert train(models, tmp_path / "out", settings).training.num_resumed_steps == 15
    for path in (tmp_path / "whole").iterdir():
        assert path.read_bytes() == (tmp_path / "out" / path.name).read_bytes()
    assert not training_path(tmp_path / "out").exists()


@pytest.mark.parametrize("grids", [TrainedGrids(), TrainedGrids(trains_codes=False)])
def test_pruned_zeros_stay(grids: TrainedGrids, original: Checkpoint, tmp_path: Path) -> None:
    compress(original, tmp_path / "start", "magnitude-50-int4-g32")
    start = Checkpoint.open(tmp_path / "start")
    models = TrainedFrom(start=start, original=original, floats=original)
    train(models, tmp_path / "out", replace(SETTINGS, grids=grids))
    written = Checkpoint.open(tmp_path / "out")
    assert written.pruned == start.pruned
    before, after = (one.linear("up", 1).dequantize() for one in (start, written))
    assert (after[before == 0] == 0).all()
    assert (after != before).any()


def test_labels_need_no_teacher(original: Checkpoint, start: Checkpoint, tmp_path: Path) -> None:
    models = TrainedFrom(start=start, original=original)
    done = train(models, tmp_path / "out", replace(SETTINGS, loss=CrossEntropy()))
    assert done.memory.teacher == 0
    assert done.training.records[0].loss != done.training.records[-1].loss


def test_bad_starts_are_refused_before_any_work(
    original: Checkpoint, start: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnsupportedError, match="needs linear layers in the codes"):
        train(TrainedFrom(start=original, original=original), tmp_path / "out", SETTINGS)
    short = replace(SETTINGS, train=config(15, batch_tokens=16))
    models = TrainedFrom(start=start, original=original)
    with pytest.raises(ConfigError, match="shorter than one step"):
        train(models, tmp_path / "out", short)
    monkeypatch.setattr("paredown.distill.memory.free_bytes", lambda device: 1 << 20)
    with pytest.raises(CapacityError, match="does not fit"):
        train(models, tmp_path / "out", SETTINGS)
    assert list(tmp_path.iterdir()) == []


def test_the_steps_of_recipes_become_trainings() -> None:
    found = {
        method: quantized_train_config(TrainStep(method=method, num_tokens=8192), 1)
        for method in ("qad", "qat", "llm_qat", "scales")
    }
    assert [one.loss for one in found.values()] == [KL(), CrossEntropy(), KL(), KL()]
    assert [one.grids.rule for one in found.values()] == ["learned", "learned", "minmax", "learned"]
    assert [one.grids.trains_codes for one in found.values()] == [True, True, True, False]
    assert found["qad"].train.num_tokens == 8192
    timed = quantized_train_config(TrainStep(minutes=2.0, learning_rate=0.5)).train
    assert (timed.num_tokens, timed.minutes, timed.learning_rate) == (None, 2.0, 0.5)
