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

import torch
from torch import Tensor

from paredown.distill.adamw import AdamW
from paredown.distill.batch import Batch
from paredown.distill.batch_source import BatchSource
from paredown.distill.gradient_workers import GradientWorkers
from paredown.distill.layout import Layout
from paredown.distill.objective import Objective
from paredown.distill.run_log import RunLog, StepRecord
from paredown.distill.train_config import TrainConfig
from paredown.distill.training_folder import TrainingFolder
from paredown.errors import TrainingError
from paredown.models.decoder.decoder import Decoder
from paredown.progress import OnProgress, time_left
from paredown.units import format_duration

# A state is saved again no sooner than after so many times the seconds that saving it took.
_SAVE_SPACING = 20
# The end of a run whose mean loss stands for the result.
_END_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class Training:
    """A student, the source of its batches, and what it learns. Only `parameters` of the student
    change, by their names in it; where `held` has a mask for one of them, those weights are 0 and
    stay so. `rate_factors` says which are moved by a multiple of the learning rate."""

    student: Decoder
    parameters: Mapping[str, Tensor]
    source: BatchSource
    objective: Objective
    held: Mapping[str, Tensor] = field(default_factory=dict)
    rate_factors: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """All steps of a run, those before it was resumed included."""

    records: tuple[StepRecord, ...]
    layout: Layout
    num_resumed_steps: int = 0

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
    layout it began with. On one machine it ends in the same bits as an unbroken run, if the budget
    is in tokens.

    Raises ConfigError for a budget smaller than one step, TrainingError when a loss or a gradient
    is no number or the source fails (the folder then has the state before that step), and
    OutputError where a state or the log cannot be written.
    """
    config.budget.check(training.source.num_rows * training.source.row_tokens)
    parameters = list(training.parameters.values())
    for parameter in parameters:
        parameter.requires_grad_(True)
    try:
        with torch.random.fork_rng(devices=[]):
            run = _Run(training, config, layout, folder)
            run.to_the_end(on_progress)
            return run.result()
    finally:
        for parameter in parameters:
            parameter.requires_grad_(False)


class _Run:
    """A training under way: what changes from step to step."""

    def __init__(
        self,
        training: Training,
        config: TrainConfig,
        layout: Layout,
        folder: TrainingFolder | None,
    ) -> None:
        self._training, self._config, self._folder = training, config, folder
        self._optimizer = AdamW(
            training.parameters, config.optimizer, training.held, training.rate_factors
        )
        self._layout = layout
        self._records: list[StepRecord] = []
        self._elapsed_s = 0.0
        self._save_s = 0.0
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
        )

    def to_the_end(self, on_progress: OnProgress | None) -> None:
        log = RunLog(self._config.log, self._records)
        arithmetic, layout = self._config.chosen_arithmetic, self._layout

        def loss(part: Batch) -> Tensor:
            return self._training.objective.total(
                self._training.student, part, arithmetic, recomputes=layout.recomputes
            )

        parameters = list(self._training.parameters.values())
        with GradientWorkers(parameters, loss, layout.num_workers, layout.threads_each) as workers:
            while (progress := self._progress()) < 1:
                if on_progress is not None:
                    on_progress(self._words(progress), progress)
                record = self._step(workers.add_up)
                self._records.append(record)
                log.add(record)
                self._save_if_due()
        # What follows may fail, and all of this would be lost.
        self._save()

    def _step(self, add_up: Callable[[list[Batch]], tuple[float, list[Tensor]]]) -> StepRecord:
        started = time.monotonic()
        number = len(self._records)
        batch = self._batch(number)
        num_targets = batch.num_targets
        rate = self._config.schedule.rate(self._progress(num_more=1))
        loss = norm = 0.0
        if num_targets:
            total, gradients = add_up(batch.split(self._layout.part_rows))
            loss = total / num_targets
            torch._foreach_div_(gradients, num_targets)
            norm = self._optimizer.step(gradients, rate) if math.isfinite(loss) else math.nan
            if not math.isfinite(norm):
                self._stop(loss, norm)
        self._elapsed_s += time.monotonic() - started
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
            return self._training.source.batch(number, self._training.student)
        except TrainingError:
            self._save()
            raise

    @property
    def _step_tokens(self) -> int:
        return self._training.source.num_rows * self._training.source.row_tokens

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
        return f"training: step {last.step:,}, loss {last.loss:.4g}, {rate:,.0f} tokens/s{end}"

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
        if self._folder is not None:
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
