"""A step is the same in whichever parts it is computed, what does not count cannot be seen, and a
stopped run goes on as if it had never stopped (D01, D03, D05, D09)."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from drivers.tiny_training import (
    WHOLE,
    config,
    random_rows,
    smooth_adam,
    train_copy,
    uneven_rows,
)
from fakes.tiny_models import make_model
from paredown.distill import chunked_logits
from paredown.distill.batch import Batch
from paredown.distill.layout import Layout
from paredown.distill.losses.cross_entropy import CrossEntropy
from paredown.distill.losses.kl import KL
from paredown.distill.objective import LogitObjective, Objective
from paredown.distill.recover import trained_parameters
from paredown.distill.row_batches import RowBatches
from paredown.distill.rows import Rows
from paredown.distill.run_log import StepRecord
from paredown.distill.teacher import DecoderTeacher
from paredown.distill.trainer import Training, TrainResult, train
from paredown.distill.training_folder import open_training_folder
from paredown.errors import ConfigError, TrainingError
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder

HARD = LogitObjective(loss=CrossEntropy())
RATE = {"learning_rate": 0.1, "final_learning_rate": 0.1}
# Ways to compute a step of four rows.
LAYOUTS = {
    "row by row": Layout(part_rows=1, num_workers=1, threads_each=1, recomputes=False),
    "on threads": Layout(part_rows=1, num_workers=3, threads_each=1, recomputes=False),
    "recomputed": Layout(part_rows=2, num_workers=2, threads_each=1, recomputes=True),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("student")
    make_model("llama", torch.float32, 4).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def soft(tmp_path_factory: pytest.TempPathFactory) -> Objective:
    """KL from another model."""
    folder = tmp_path_factory.mktemp("teacher")
    make_model("llama", torch.float32, 9).save_pretrained(folder)
    teacher = DecoderTeacher.load(Checkpoint.open(folder), "fp32")
    return LogitObjective(loss=KL(temperature=2.0), teacher=teacher)


def difference(one: Decoder, other: Decoder) -> float:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs)


def untimed(result: TrainResult) -> list[StepRecord]:
    return [replace(record, elapsed_s=0.0) for record in result.records]


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_a_step_is_the_same_in_any_parts(kind: str, source: Path, soft: Objective) -> None:
    objective = HARD if kind == "hard" else soft
    rows = uneven_rows([1, 9, 3, 7], 12)
    one_step = config(48, batch_tokens=48, **RATE, optimizer=smooth_adam())
    whole, told = train_copy(source, rows, objective, one_step)
    assert told.num_targets == 20
    before = Decoder.from_checkpoint(Checkpoint.open(source))
    assert difference(whole, before) > 1e-4
    # The mean over all targets, and no mean of means.
    batch = rows.batch(np.arange(4))
    expected = objective.total(before, batch, "fp32", recomputes=False).item() / 20
    assert told.records[0].loss == pytest.approx(expected, rel=1e-6)
    for layout in LAYOUTS.values():
        parts, told_parts = train_copy(source, rows, objective, one_step, layout)
        assert told_parts.records[0].loss == pytest.approx(told.records[0].loss, rel=1e-6)
        assert difference(whole, parts) < 1e-6


def test_threads_do_not_change_a_bit(source: Path) -> None:
    rows, steps = random_rows(6, 16), config(4 * 64, batch_tokens=64)
    one = train_copy(source, rows, HARD, steps, LAYOUTS["row by row"])
    three = train_copy(source, rows, HARD, steps, LAYOUTS["on threads"])
    assert difference(one[0], three[0]) == 0
    assert untimed(one[1]) == untimed(three[1])


def test_logits_in_chunks_are_those_of_the_whole(
    source: Path, soft: Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    student = Decoder.from_checkpoint(Checkpoint.open(source)).requires_grad_(True)
    batch = uneven_rows([5, 30, 17], 40).batch(np.arange(3))

    def found() -> list[Tensor]:
        loss = soft.total(student, batch, "fp32", recomputes=False)
        return [loss.detach(), *torch.autograd.grad(loss, list(student.parameters()))]

    whole = found()
    monkeypatch.setattr(chunked_logits, "chunk_rows", lambda vocab_size, device: 7)
    for one, other in zip(whole, found(), strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-5)


def test_gradients_are_those_of_the_plain_decoder(source: Path) -> None:
    student = Decoder.from_checkpoint(Checkpoint.open(source)).double().requires_grad_(True)
    batch = uneven_rows([5, 30, 17], 40).batch(np.arange(3))
    parameters = list(student.parameters())
    loss = HARD.total(student, batch, "fp32", recomputes=False)
    logits_NV = student(batch.inputs_BT)[batch.is_target_BT]
    plain = torch.nn.functional.cross_entropy(logits_NV, batch.targets(), reduction="sum")
    torch.testing.assert_close(loss, plain)
    found = torch.autograd.grad(loss, parameters)
    for one, other in zip(found, torch.autograd.grad(plain, parameters), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_places_that_are_no_targets_cannot_be_seen(
    kind: str, source: Path, soft: Objective
) -> None:
    """[3 of a prompt][2 of an answer][3 of padding]: other tokens in the padding, which the student
    and the teacher predict from, change no bit."""
    objective = HARD if kind == "hard" else soft
    student = Decoder.from_checkpoint(Checkpoint.open(source)).requires_grad_(True)
    rows = random_rows(1, 8)
    is_target_NT = np.array([[False, False, False, True, True, False, False, False]])

    def found(padding: list[int]) -> list[Tensor]:
        tokens_NT = np.concatenate([rows.tokens_NT[:, :5], [padding]], axis=1)
        batch = Rows(tokens_NT=tokens_NT, is_target_NT=is_target_NT).batch(np.array([0]))
        loss = objective.total(student, batch, "fp32", recomputes=False)
        return [loss.detach(), *torch.autograd.grad(loss, list(student.parameters()))]

    for one, other in zip(found([1, 2, 3]), found([7, 8, 9]), strict=True):
        assert (one == other).all()


def test_a_step_without_targets_moves_nothing(source: Path) -> None:
    rows = uneven_rows([0, 0], 8)
    steps = config(32, batch_tokens=16, optimizer=smooth_adam(weight_decay=0.5))
    student, told = train_copy(source, rows, HARD, steps)
    assert [record.loss for record in told.records] == [0.0, 0.0]
    assert told.num_targets == 0
    assert difference(student, Decoder.from_checkpoint(Checkpoint.open(source))) == 0
    batch = rows.batch(np.arange(2))
    student.requires_grad_(True)
    loss = HARD.total(student, batch, "fp32", recomputes=False)
    assert loss.item() == 0.0
    assert all((one == 0).all() for one in torch.autograd.grad(loss, list(student.parameters())))


def test_the_loss_falls_and_the_rate_follows_its_schedule(source: Path) -> None:
    steps = config(20 * 64, batch_tokens=64, learning_rate=3e-3, final_learning_rate=0.0)
    _, told = train_copy(source, random_rows(4, 16), HARD, steps)
    losses = [record.loss for record in told.records]
    assert losses[-1] < 0.7 * losses[0]
    rates = [record.learning_rate for record in told.records]
    assert rates == [steps.schedule.rate(step / 20) for step in range(1, 21)]
    assert rates[-1] == 0.0
    assert [record.num_tokens for record in told.records] == list(range(64, 1281, 64))


def test_gradients_are_clipped_by_their_norm(source: Path) -> None:
    rows = random_rows(1, 8)

    def moved(clip_norm: float) -> tuple[float, float]:
        adam = smooth_adam(clip_norm=clip_norm, eps=1e3)
        rates = {"learning_rate": 1e3, "final_learning_rate": 1e3}
        steps = config(8, **rates, optimizer=adam)
        student, told = train_copy(source, rows, HARD, steps)
        before = Decoder.from_checkpoint(Checkpoint.open(source))
        pairs = zip(student.parameters(), before.parameters(), strict=True)
        square = sum(float((a.double() - b.double()).square().sum()) for a, b in pairs)
        return math.sqrt(square), told.records[0].gradient_norm

    free, norm = moved(1e9)
    clipped, same = moved(norm / 4)
    assert same == norm
    assert clipped == pytest.approx(free / 4, rel=0.1)


def test_a_budget_smaller_than_a_step_is_refused(source: Path) -> None:
    with pytest.raises(ConfigError, match="shorter than one step"):
        train_copy(source, random_rows(4, 16), HARD, config(63, batch_tokens=64))


def test_minutes_end_a_run(source: Path) -> None:
    steps = replace(config(1), num_tokens=None, minutes=1e-5)
    _, told = train_copy(source, random_rows(4, 16), HARD, steps)
    assert told.records[-1].elapsed_s >= 6e-4


@dataclass(frozen=True, kw_only=True)
class Breaking:
    """Gives a loss that is no number once `rest` batches have been seen."""

    rest: list[int]
    value: float

    def total(self, student: Decoder, batch: Batch, arithmetic: str, *, recomputes: bool) -> Tensor:
        self.rest[0] -= 1
        loss = HARD.total(student, batch, "fp32", recomputes=recomputes)
        return loss * self.value if self.rest[0] < 0 else loss


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_numbers_gone_astray_stop_a_run_and_keep_what_was_good(
    value: float, source: Path, tmp_path: Path
) -> None:
    rows, steps = random_rows(4, 16), config(8 * 16, batch_tokens=16)
    good, _ = train_copy(source, rows, HARD, config(3 * 16, batch_tokens=16, warmup_share=0.0))
    student = Decoder.from_checkpoint(Checkpoint.open(source))
    training = Training(
        student=student,
        parameters=trained_parameters(student, trains_tables=True),
        source=RowBatches.of(rows, steps),
        objective=Breaking(rest=[3], value=value),
    )
    with (
        pytest.raises(TrainingError, match="step 4") as raised,
        open_training_folder(tmp_path / "work", "x") as folder,
    ):
        train(training, steps, WHOLE, folder)
    assert str(tmp_path / "work") in str(raised.value)
    with open_training_folder(tmp_path / "work", "x") as folder:
        state = folder.load()
    assert state is not None
    assert len(state["records"]) == 3
    assert all(one.isfinite().all() for one in state["parameters"].values())
    assert all((state["parameters"][name] == one).all() for name, one in student.named_parameters())
    assert difference(good, student) < 1e-2
