"""The training loop: the only one, whatever is learned and from whom.

A step gets a batch from its source, adds up the losses of all its targets and the gradients,
divides both by the number of targets, and moves the weights once. So a step is the same in
whichever parts it is computed.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paredown.distill.adamw import AdamW
from paredown.distill.batch import Batch
from paredown.distill.batch_source import BatchSource
from paredown.distill.gradient_workers import GradientWorkers
from paredown.distill.judge import HeldOut, Judge, Judgement, best_of
from paredown.distill.layout import Layout
from paredown.distill.objective import Objective
from paredown.distill.peers import Peers
from paredown.distill.rows import BatchRows
from paredown.distill.run_log import RunLog, StepRecord
from paredown.distill.train_config import TrainConfig
from paredown.distill.training_folder import TrainingFolder
from paredown.errors import TrainingError
from paredown.models.decoder.decoder import Decoder
from paredown.progress import OnProgress, time_left
from paredown.spec.device import Device
from paredown.units import format_duration

# A state is saved again no sooner than after so many times the seconds that saving it took.
_SAVE_SPACING = 20
# The end of a run whose mean loss stands for the result.
_END_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class Training:
    """A student, the source of its batches, and what it learns. Only `parameters` of the student
    change, by their names in it; where `held` has a mask for one of them, those weights are 0 and
    stay so. `rate_factors` says which are moved by a multiple of the learning rate. `held_out`
    judges the student, `peers` are the processes that train it together."""

    student: Decoder
    parameters: Mapping[str, Tensor]
    source: BatchSource
    objective: Objective
    held: Mapping[str, Tensor] = field(default_factory=dict)
    rate_factors: Mapping[str, float] = field(default_factory=dict)
    held_out: HeldOut | None = None
    peers: Peers | None = None


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """All steps of a run, those before it was resumed included. `judgements` are the looks at
    held-out rows; with any the weights are those of `best`. `notes` are the lesson's."""

    records: tuple[StepRecord, ...]
    layout: Layout
    num_resumed_steps: int = 0
    judgements: tuple[Judgement, ...] = ()
    stopped_early: bool = False
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Judgement | None:
        return best_of(self.judgements)

    @property
    def num_tokens(self) -> int:
        return self.records[-1].num_tokens

    @property
    def num_targets(self) -> int:
        return sum(record.num_targets for record in self.records)

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / max(self.records[-1].elapsed_s, 1e-9)

    @property
    def final_loss(self) -> float:
        """The mean loss of the last targets."""
        last = self.records[-max(1, round(_END_SHARE * len(self.records))) :]
        num_targets = sum(record.num_targets for record in last)
        return sum(one.loss * one.num_targets for one in last) / max(1, num_targets)


def train(
    training: Training,
    config: TrainConfig,
    layout: Layout,
    folder: TrainingFolder | None = None,
    on_progress: OnProgress | None = None,
) -> TrainResult:
    """Trains the student in place. A run whose `folder` holds a state goes on from it, in the
    layout it began with. On one machine's processor it ends in the same bits as an unbroken run, if
    the budget is in tokens. On a GPU the student is there while it trains.

    Raises ConfigError for a budget smaller than one step, TrainingError when a loss or a gradient
    is no number or the source fails (the folder then has the state before that step), and
    OutputError where a state or the log cannot be written.
    """
    config.budget.check(training.source.step_tokens)
    if training.peers is not None:
        training.peers.check(training.source.num_rows)
    parameters = list(training.parameters.values())
    for parameter in parameters:
        parameter.requires_grad_(True)
    try:
        _move(training, config.device)
        with torch.random.fork_rng(devices=[]):
            run = _Run(training, config, layout, folder)
            run.to_the_end(on_progress)
            return run.result()
    finally:
        for parameter in parameters:
            parameter.requires_grad_(False)
        _move(training, "cpu")


def _move(training: Training, device: Device) -> None:
    """Moves all that is trained, and what the student computes it with."""
    for parameter in training.parameters.values():
        parameter.data = parameter.data.to(device)
    training.student.to(device)


class _Run:
    """A training under way: what changes from step to step."""

    def __init__(
        self,
        training: Training,
        config: TrainConfig,
        layout: Layout,
        folder: TrainingFolder | None,
    ) -> None:
        self._training, self._config = training, config
        self._peers = training.peers
        self._writes = self._peers is None or self._peers.is_first
        self._folder = folder
        held = {name: mask.to(config.device) for name, mask in training.held.items()}
        self._optimizer = AdamW(training.parameters, config.optimizer, held, training.rate_factors)
        self._layout = layout
        self._step_tokens = training.source.step_tokens
        self._records: list[StepRecord] = []
        self._elapsed_s = 0.0
        self._save_s = 0.0
        self._workers: GradientWorkers | None = None
        self._judge = None
        if training.held_out is not None:
            self._judge = Judge(training.held_out, training.parameters, self._mean_loss)
        torch.manual_seed(config.seed)
        state = None if folder is None else folder.load()
        if state is not None:
            self._load(state)
        self._num_resumed = len(self._records)
        self._saved_at_s = self._elapsed_s

    def result(self) -> TrainResult:
        return TrainResult(
            records=tuple(self._records),
            layout=self._layout,
            num_resumed_steps=self._num_resumed,
            judgements=() if self._judge is None else tuple(self._judge.judgements),
            stopped_early=self._is_over and self._progress() < 1,
        )

    def to_the_end(self, on_progress: OnProgress | None) -> None:
        log = RunLog(self._config.log if self._writes else None, self._records)
        arithmetic, layout = self._config.chosen_arithmetic, self._layout

        def loss(part: Batch) -> Tensor:
            # What models make beside their weights, such as positions, lies there too.
            with torch.device(self._config.device):
                return self._training.objective.total(
                    self._training.student,
                    part.to(self._config.device),
                    arithmetic,
                    recomputes=layout.recomputes,
                )

        parameters = list(self._training.parameters.values())
        with GradientWorkers(parameters, loss, layout.num_workers, layout.threads_each) as workers:
            self._workers = workers
            self._look()
            while (progress := self._progress()) < 1 and not self._is_over:
                if on_progress is not None:
                    on_progress(self._words(progress), progress)
                record = self._step(workers.add_up)
                self._records.append(record)
                log.add(record)
                self._look()
                self._save_if_due()
        # What follows may fail, and all of this would be lost.
        self._save()
        if self._judge is not None:
            self._judge.restore_best()

    @property
    def _is_over(self) -> bool:
        return self._judge is not None and self._judge.is_over

    def _look(self) -> None:
        """Judges the student on the held-out rows where that is due. It counts as training time."""
        if self._judge is None:
            return
        started = time.monotonic()
        num_steps = len(self._records)
        self._judge.look(num_steps, num_steps * self._step_tokens, self._progress())
        self._elapsed_s = self._agreed(self._elapsed_s + time.monotonic() - started)

    def _mean_loss(self, rows: BatchRows) -> float:
        assert self._workers is not None
        batch = rows.batch(np.arange(rows.num_rows))
        parts = batch.split(self._layout.part_rows)
        return self._agreed(self._workers.sum_losses(parts) / max(1, batch.num_targets))

    def _agreed(self, value: float) -> float:
        return value if self._peers is None else self._peers.agreed(value)

    def _step(self, add_up: Callable[[list[Batch]], tuple[float, list[Tensor]]]) -> StepRecord:
        started = time.monotonic()
        number = len(self._records)
        batch = self._batch(number)
        num_targets = batch.num_targets
        rate = self._config.schedule.rate(self._progress(num_more=1))
        loss = norm = 0.0
        if num_targets:
            own = batch if self._peers is None else self._peers.own(batch)
            total, gradients = add_up(own.split(self._layout.part_rows))
            if self._peers is not None:
                (total,) = self._peers.sum([total])
                self._peers.add_up(gradients)
            loss = total / num_targets
            torch._foreach_div_(gradients, num_targets)
            norm = self._optimizer.step(gradients, rate) if math.isfinite(loss) else math.nan
            if not math.isfinite(norm):
                self._stop(loss, norm)
        self._elapsed_s = self._agreed(self._elapsed_s + time.monotonic() - started)
        return StepRecord(
            step=number + 1,
            num_tokens=(number + 1) * self._step_tokens,
            num_targets=num_targets,
            loss=loss,
            gradient_norm=norm,
            learning_rate=rate,
            elapsed_s=self._elapsed_s,
        )

    def _batch(self, number: int) -> Batch:
        """Returns the batch of a step. Where its source fails, the state before it is kept."""
        try:
            with torch.device(self._config.device):
                return self._training.source.batch(number, self._training.student)
        except TrainingError:
            self._save()
            raise

    def _progress(self, num_more: int = 0) -> float:
        """Returns the share of the budget that is used, or will be after `num_more` steps."""
        steps = len(self._records)
        each_s = self._elapsed_s / steps if steps else 0.0
        return self._config.budget.progress(
            steps + num_more, self._elapsed_s + num_more * each_s, self._step_tokens
        )

    def _words(self, progress: float) -> str:
        if not self._records:
            return "training: first step"
        last = self._records[-1]
        rate = last.num_tokens / max(self._elapsed_s, 1e-9)
        left = time_left(self._elapsed_s, progress)
        end = "" if left is None else f", {format_duration(left)} left"
        judged = ""
        if self._judge is not None and self._judge.judgements:
            judged = f", held out {self._judge.judgements[-1].loss:.4g}"
        told = f"step {last.step:,}, loss {last.loss:.4g}{judged}, {rate:,.0f} tokens/s{end}"
        return f"training: {told}"

    def _stop(self, loss: float, norm: float) -> None:
        """Keeps the state before this step, and raises TrainingError."""
        kept = ""
        if self._folder is not None:
            self._save()
            kept = f"; the weights before it are kept in {self._folder.path}"
        raise TrainingError(
            f"the training went astray at step {len(self._records) + 1}{kept}",
            seen=f"loss {loss:g}, norm of the gradients {norm:g}",
            remedy="Give a lower learning rate.",
        )

    def _save_if_due(self) -> None:
        spacing_s = self._config.save_every_s
        if spacing_s:
            spacing_s = max(spacing_s, _SAVE_SPACING * self._save_s)
        if self._elapsed_s - self._saved_at_s >= spacing_s:
            started = time.monotonic()
            self._save()
            self._save_s = time.monotonic() - started
            self._saved_at_s = self._elapsed_s

    def _save(self) -> None:
        if self._folder is not None and self._writes:
            self._folder.save(self._state())

    def _state(self) -> dict[str, Any]:
        return {
            "parameters": {
                name: parameter.detach() for name, parameter in self._training.parameters.items()
            },
            "optimizer": self._optimizer.state(),
            "random": torch.get_rng_state(),
            "records": [asdict(record) for record in self._records],
            "layout": asdict(self._layout),
            "judge": None if self._judge is None else self._judge.state(),
        }

    def _load(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            for name, values in state["parameters"].items():
                self._training.parameters[name].copy_(values)
        self._optimizer.load(state["optimizer"])
        torch.set_rng_state(state["random"])
        self._records = [StepRecord(**record) for record in state["records"]]
        self._elapsed_s = self._records[-1].elapsed_s if self._records else 0.0
        self._layout = Layout(**state["layout"])
        if self._judge is not None:
            self._judge.load(state["judge"])
