"""Training on a GPU learns what it learns on a CPU, and the student comes back."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from drivers.tiny_training import config, random_rows
from fakes.small_tokenizers import byte_level
from fakes.tiny_models import make_model
from paredown.compress.changed_recipe import with_train_device
from paredown.compress.compress import compress
from paredown.compress.recipe_names import find_recipe
from paredown.compress.steps import RecoverStep, TrainStep
from paredown.distill.batch import Batch
from paredown.distill.data.training_data import TrainingData
from paredown.distill.distill import DistillConfig, DistillResult, Pair, distill
from paredown.distill.methods import METHODS, MethodOptions
from paredown.distill.quantized.train_quantized import (
    QuantizedTrainConfig,
    TrainedFrom,
    train_quantized,
)
from paredown.distill.quantized.trained_grids import TrainedGrids
from paredown.errors import ConfigError, UnsupportedError
from paredown.models.checkpoint import Checkpoint
from paredown.spec.device import Device

ROWS, HELD_OUT = random_rows(64, 24), random_rows(4, 24, seed=5)
DATA = TrainingData(source="random", rows=ROWS, held_out=HELD_OUT, notes=())
OPTIONS = MethodOptions(prompt_tokens=4, new_tokens=8, reward="drivers.capital_letters:score")


def folder_of(family: str, seed: int, place: Path) -> Path:
    make_model(family, torch.bfloat16, seed).save_pretrained(place)
    byte_level().save(str(place / "tokenizer.json"))
    return place


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    place = tmp_path_factory.mktemp("models")
    return Pair(
        student=Checkpoint.open(folder_of("llama", 4, place / "student")),
        teacher=Checkpoint.open(folder_of("llama", 9, place / "teacher")),
    )


def learn(pair: Pair, method: str, device: Device, output: Path) -> DistillResult:
    train = config(6 * 96, batch_tokens=96, learning_rate=1e-3, device=device)
    return distill(pair, output, DistillConfig(train=train, method=method, options=OPTIONS), DATA)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("method", METHODS)
def test_a_method_learns_the_same_on_a_gpu(method: str, pair: Pair, tmp_path: Path) -> None:
    by_device = [learn(pair, method, one, tmp_path / one) for one in ("cpu", "cuda")]
    cpu, gpu = ([record.loss for record in done.training.records] for done in by_device)
    assert gpu[0] == pytest.approx(cpu[0], rel=1e-3, abs=1e-4)
    assert len(gpu) == len(cpu)
    looks = [[one.loss for one in done.training.judgements] for done in by_device]
    assert looks[1] == pytest.approx(looks[0], rel=0.02, abs=1e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("recipe", ["int2-g32", "w8a8", "int4-g32-kv-int8"])
@pytest.mark.parametrize("trains_codes", [True, False])
def test_codes_are_trained_on_a_gpu(
    recipe: str, trains_codes: bool, pair: Pair, tmp_path: Path
) -> None:
    start = tmp_path / "start"
    compress(pair.teacher, start, recipe)
    models = TrainedFrom(start=Checkpoint.open(start), original=pair.teacher, floats=pair.teacher)
    losses, moved = [], []
    for device in ("cpu", "cuda"):
        settings = QuantizedTrainConfig(
            train=config(6 * 96, batch_tokens=96, learning_rate=1e-3, device=device),
            grids=TrainedGrids(trains_codes=trains_codes),
        )
        done = train_quantized(models, tmp_path / device, settings, ROWS)
        losses.append([record.loss for record in done.training.records])
        moved.append(done.moved_share)
    # Later steps differ by more: a sum of another order may round an input to another code.
    assert losses[1][0] == pytest.approx(losses[0][0], rel=1e-2, abs=1e-4)
    assert moved[1] == pytest.approx(moved[0], rel=0.2)
    assert (moved[1] > 0) == trains_codes


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_run_stopped_on_a_gpu_goes_on(pair: Pair, tmp_path: Path) -> None:
    train = config(6 * 96, batch_tokens=96, learning_rate=1e-3, device="cuda", save_every_s=0.0)

    def stop(what: str, share: float) -> None:
        if share >= 0.5:
            raise KeyboardInterrupt

    settings = DistillConfig(train=train)
    with pytest.raises(KeyboardInterrupt):
        distill(pair, tmp_path / "out", settings, DATA, on_progress=stop)
    done = distill(pair, tmp_path / "out", settings, DATA)
    assert done.training.num_resumed_steps == 3
    assert len(done.training.records) == 6


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused_before_work(pair: Pair, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="GPU"):
        learn(pair, "kl", "cuda", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_all_of_a_batch_is_moved() -> None:
    batch = ROWS.batch(np.arange(2))
    moved = replace(batch, advantages_BT=torch.ones(2, 23)).to("meta")  # type: ignore[arg-type]
    assert moved.device_type == "meta"
    assert isinstance(moved, Batch)
    assert moved.advantages_BT is not None
    assert moved.advantages_BT.device.type == moved.targets_BT.device.type == "meta"
    assert moved.weights_BT is None


def test_a_recipe_trains_where_it_is_told() -> None:
    recipe = with_train_device(find_recipe("prune-ffn-25-recover-1000-qad-int3-g64"), "cuda")
    trains = [step for step in recipe.steps if isinstance(step, RecoverStep | TrainStep)]
    assert [step.device for step in trains] == ["cuda", "cuda"]
    with pytest.raises(ConfigError, match="trains"):
        with_train_device(find_recipe("int4-g64"), "cuda")
