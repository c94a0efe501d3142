"""The best weights are the result, training ends where nothing gets better, and a run that was
stopped in between goes on as if it had not been (D09)."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from drivers.tiny_training import WHOLE, config, random_rows
from fakes.tiny_models import make_model
from paredown.distill.forward import fuse_attention
from paredown.distill.judge import HeldOut, Judge, Judgement, best_of
from paredown.distill.losses.cross_entropy import CrossEntropy
from paredown.distill.objective import LogitObjective
from paredown.distill.recover import trained_parameters
from paredown.distill.row_batches import RowBatches
from paredown.distill.rows import Rows
from paredown.distill.train_config import TrainConfig
from paredown.distill.trainer import Training, TrainResult, train
from paredown.distill.training_folder import TrainingFolder, open_training_folder
from paredown.errors import ConfigError
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder

OBJECTIVE = LogitObjective(loss=CrossEntropy())
ROWS, OTHERS = random_rows(4, 16), random_rows(6, 16, seed=5)
STEPS = config(40 * 64, batch_tokens=64, learning_rate=3e-3, save_every_s=0.0)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("student")
    make_model("llama", torch.float32, 4).save_pretrained(folder)
    return folder


def run(
    source: Path,
    held_out: HeldOut | None,
    steps: TrainConfig = STEPS,
    folder: TrainingFolder | None = None,
    stop_at: float = 2.0,
) -> tuple[Decoder, TrainResult]:
    def stop(what: str, share: float) -> None:
        if share >= stop_at:
            raise KeyboardInterrupt

    student = Decoder.from_checkpoint(Checkpoint.open(source))
    fuse_attention(student)
    training = Training(
        student=student,
        parameters=trained_parameters(student, trains_tables=True),
        source=RowBatches.of(ROWS, steps),
        objective=OBJECTIVE,
        held_out=held_out,
    )
    return student, train(training, steps, WHOLE, folder, stop)


def mean_loss(student: Decoder, rows: Rows) -> float:
    batch = rows.batch(np.arange(rows.num_rows))
    with torch.no_grad():
        total = OBJECTIVE.total(student, batch, "fp32", recomputes=False)
    return total.item() / batch.num_targets


def same(one: Decoder, other: Decoder) -> bool:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(bool((a == b).all()) for a, b in pairs)


def test_the_best_weights_are_the_result_and_training_ends_early(source: Path) -> None:
    """Random rows say nothing about others, so the loss of these rises while that of the rows in
    training falls."""
    student, told = run(source, HeldOut(rows=OTHERS, patience=3, every_share=0.05))
    losses = [one.loss for one in told.judgements]
    best = told.best
    assert best is not None
    assert told.stopped_early
    assert best.loss == min(losses)
    assert told.judgements.index(best) == len(losses) - 4
    assert mean_loss(student, OTHERS) == pytest.approx(best.loss, rel=1e-6)
    assert len(told.records) < 40


def test_rows_that_get_better_are_judged_to_the_end(source: Path) -> None:
    student, told = run(source, HeldOut(rows=ROWS, every_share=0.25))
    assert [one.step for one in told.judgements] == [0, 10, 20, 30, 40]
    assert [one.num_tokens for one in told.judgements] == [0, 640, 1280, 1920, 2560]
    assert not told.stopped_early
    assert told.best == told.judgements[-1]
    assert mean_loss(student, ROWS) == pytest.approx(told.judgements[-1].loss, rel=1e-6)


def test_looking_changes_nothing_but_what_is_kept(source: Path) -> None:
    plain, told = run(source, None)
    watched, told_watched = run(source, HeldOut(rows=ROWS, every_share=0.1))
    losses = [[record.loss for record in one.records] for one in (told, told_watched)]
    assert losses[0] == losses[1]
    assert same(plain, watched)


@pytest.mark.parametrize("rows", [ROWS, OTHERS], ids=["to the end", "early"])
def test_a_stopped_run_is_judged_as_an_unbroken_one(
    rows: Rows, source: Path, tmp_path: Path
) -> None:
    held_out = HeldOut(rows=rows, patience=4, every_share=0.05)
    whole, told = run(source, held_out)
    stop_at = 0.5 * len(told.records) / 40
    with (
        pytest.raises(KeyboardInterrupt),
        open_training_folder(tmp_path / "work", "x") as folder,
    ):
        run(source, held_out, folder=folder, stop_at=stop_at)
    with open_training_folder(tmp_path / "work", "x") as folder:
        student, resumed = run(source, held_out, folder=folder)
        assert 0 < resumed.num_resumed_steps < len(told.records)
        assert resumed.judgements == told.judgements
        assert resumed.stopped_early == told.stopped_early
        assert same(whole, student)
        # Whoever comes when all is done gets the same.
        again, told_again = run(source, held_out, folder=folder)
        assert told_again.judgements == told.judgements
        assert same(whole, again)


def judge_of(losses: Sequence[float], patience: int) -> tuple[Judge, Tensor]:
    weight = torch.zeros(1)
    given = iter(losses)
    judge = Judge(
        HeldOut(rows=ROWS, patience=patience, every_share=0.1),
        {"weight": weight},
        lambda rows: next(given),
    )
    for step in range(len(losses)):
        weight.fill_(step)
        judge.look(step, step, step * 0.1 + 1e-9)
    return judge, weight


@pytest.mark.parametrize(
    ("losses", "best", "is_over"),
    [
        ([3, 2, 1], 2, False),
        ([3, 2, 2, 2], 1, True),
        ([3, 2, 4, 1, 4], 3, False),
        ([math.nan, 2, 3], 1, False),
        ([1, math.nan, math.inf], 0, True),
        ([math.nan, math.nan, math.nan], 0, True),
    ],
)
def test_a_loss_that_is_no_number_is_never_better(
    losses: list[float], best: int, is_over: bool
) -> None:
    judge, weight = judge_of(losses, patience=2)
    found = best_of(judge.judgements)
    assert found is judge.judgements[best]
    assert judge.is_over == is_over
    judge.restore_best()
    assert weight.item() == best


def test_it_looks_no_more_often_than_asked() -> None:
    looks: list[int] = []
    judge = Judge(HeldOut(rows=ROWS, every_share=0.25), {}, lambda rows: 1.0)
    for step in range(101):
        judge.look(step, step, step / 100)
        judge.look(step, step, step / 100)
        looks = [one.step for one in judge.judgements]
    assert looks == [0, 25, 50, 75, 100]
    assert best_of([]) is None
    assert Judgement(step=0, num_tokens=0, loss=1.0) == judge.judgements[0]


@pytest.mark.parametrize(
    "fields",
    [{"patience": 0}, {"every_share": 0.0}, {"every_share": 1.5}, {"every_share": math.nan}],
)
def test_numbers_out_of_range_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        replace(HeldOut(rows=ROWS), **fields)  # type: ignore[arg-type]
