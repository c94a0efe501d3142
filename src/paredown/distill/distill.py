"""Distillation: trains a student to do what its teacher does, and writes it as a checkpoint."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor

from paredown.compress.calibrate.source_digest import source_digest
from paredown.compress.require_floats import require_floats
from paredown.distill.data.learned_data import LearnedData
from paredown.distill.data.training_data import TrainingData, TrainingDataConfig
from paredown.distill.encoder_pair import check_kinds, check_labels, no_stored_logits
from paredown.distill.forward import fuse_attention
from paredown.distill.held_zeros import held_zeros
from paredown.distill.judge import HeldOut
from paredown.distill.memory import TrainingMemory, TrainingSize, choose_layout
from paredown.distill.methods import (
    AUTO,
    Lesson,
    Method,
    MethodOptions,
    Setting,
    find_method,
)
from paredown.distill.peers import Peers
from paredown.distill.recover import trained_parameters
from paredown.distill.rows import BatchRows
from paredown.distill.same_vocabulary import check_same_vocabulary
from paredown.distill.teacher import DecoderTeacher
from paredown.distill.teacher_logits.check_loss import check_loss
from paredown.distill.teacher_logits.stored_teacher import StoredTeacher
from paredown.distill.teacher_logits.stored_text import StoredText
from paredown.distill.teacher_logits.teacher_logits import TeacherLogits
from paredown.distill.teacher_logits.write import write_teacher_logits
from paredown.distill.train_config import TrainConfig
from paredown.distill.trainer import Training, TrainResult, train
from paredown.distill.training_folder import (
    TrainingFolder,
    open_training_folder,
    training_path,
)
from paredown.errors import ConfigError, UnsupportedError
from paredown.kernels.probe import resolve_num_threads
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.device import check_device
from paredown.models.decoder.write import write_decoder
from paredown.models.files.output_folder import check_output_folder
from paredown.models.text.tokenizer import Tokenizer
from paredown.progress import OnProgress


@dataclass(frozen=True, kw_only=True)
class DistillConfig:
    """Says what the student starts as, how it learns, and on what (docs/guide/distill.md). Raises
    ConfigError for an unknown method and numbers out of range.

    `train`           the budget and the numbers of the training
    `student`         "every-2" for every second layer of the teacher, "width-50" for half of its
                      width, "every-2+width-50", a config.json, or the folder of a checkpoint
    `method`          one of `METHODS` (distill/methods.py), or "auto" (jobs/distillation_method.py)
    `options`         numbers of the method
    `data`            the text, and the share of it that is held out
    `patience`        looks at the held-out text without a better one, after which training ends
    `teacher_logits`  where the teacher's distributions are kept, which are then computed once and
                      read in training; None runs the teacher beside the student
    """

    train: TrainConfig
    student: str = "every-2"
    method: str = "soft-label"
    options: MethodOptions = field(default_factory=MethodOptions)
    data: TrainingDataConfig = field(default_factory=TrainingDataConfig)
    patience: int = 3
    teacher_logits: TeacherLogits | None = None

    def __post_init__(self) -> None:
        if self.method != AUTO:
            self._check_method(find_method(self.method))
        elif self.options.reward:
            find_method("reward").check(self.options)
        if self.patience < 1:
            raise ConfigError(
                "a student cannot be judged without patience",
                seen=self.patience,
                remedy="Give a patience of at least 1.",
            )

    def check_processes(self, number: int) -> None:
        """Raises ConfigError where several processes are to learn from a reward. Each would ask
        for rewards of its own, which may differ, and wait for those whose reward failed."""
        name = "reward" if self.method == AUTO and self.options.reward else self.method
        if number > 1 and name != AUTO and not find_method(name).is_shared:
            raise ConfigError(
                "one process alone can learn by this method",
                seen=f"{name} in {number} processes",
                remedy="Start the command without `torchrun`; one process uses all cores.",
            )

    def _check_method(self, method: Method) -> None:
        method.check(self.options)
        if self.teacher_logits is not None and (method.loss is None or not method.needs_teacher):
            raise ConfigError(
                "this method does not learn from stored distributions of a teacher",
                seen=self.method,
                remedy="Leave out --teacher-logits, or choose a method that learns from the "
                "teacher's distribution of the text's tokens (soft-label, kl, jsd, ...).",
            )


@dataclass(frozen=True, kw_only=True)
class DistillResult:
    """A folder that `distill` wrote. `clamped` has the values by tensor that were out of the range
    of their dtype. `path` is None in a process that only helped to train."""

    path: Path | None
    training: TrainResult
    memory: TrainingMemory
    clamped: Mapping[str, int]


# Called with the folder before it appears, and with how the training went.
FinishDistill = Callable[[Path, TrainResult], None]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A student as it starts, its teacher, and the processes that train it together. `stored` has
    the teacher's distributions where they are read instead of computed."""

    student: Checkpoint
    teacher: Checkpoint
    peers: Peers | None = None
    stored: StoredTeacher | None = None

    def check(self, config: DistillConfig) -> None:
        """Raises UnsupportedError for a student whose weights are no floats, for vocabularies that
        differ where the method compares distributions, for models whose features the method cannot
        compare, and for a GPU that PyTorch does not see. Raises ConfigError where the method cannot
        learn from what is kept of the teacher's distributions, or in several processes."""
        config.check_processes(1 if self.peers is None else self.peers.number)
        check_device(config.train.device)
        require_floats(self.student)
        method = find_method(config.method)
        check_kinds(self.student.spec, self.teacher.spec, config.method)
        if not self.student.spec.generates and config.teacher_logits is not None:
            raise no_stored_logits()
        if not method.needs_teacher:
            return
        if config.teacher_logits is not None and method.loss is not None:
            loss, kept = method.loss(config.options), config.teacher_logits.kept
            check_loss(kept, loss, self.teacher.spec.vocab_size)
        method.size(config.options, self.student.spec, self.teacher.spec)
        try:
            check_same_vocabulary(self.student, self.teacher)
        except UnsupportedError as error:
            raise UnsupportedError(
                error.what,
                seen=error.seen,
                remedy="Learn from the text alone (--method hard-label), or give a student with "
                "the teacher's tokenizer.",
            ) from error


def distill(
    pair: Pair,
    output: Path,
    config: DistillConfig,
    data: LearnedData,
    *,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
    finish: FinishDistill | None = None,
) -> DistillResult:
    """Trains the student on `data` and writes the folder `output`, which appears whole or not at
    all; `finish` sees it before. A run that was killed goes on from its last saved state when it is
    started again.

    Raises ConfigError for a budget smaller than one step, what `Pair.check` raises, CapacityError
    for a training that does not fit in memory, TrainingError when it goes astray, and OutputError
    where something cannot be written. Stored distributions of the teacher that are not there yet
    are written first, and stay.
    """
    pair.check(config)
    rows: BatchRows = data.rows
    check_labels(pair.student.spec, config.method, data)
    config.train.budget.check(config.train.step_rows(rows.num_tokens) * rows.num_tokens)
    pair = _with_stored(pair, config, data, on_progress)
    fingerprint = _fingerprint(pair, config, data)
    if pair.peers is not None and not pair.peers.is_first:
        # The first process holds the lock and writes; this one only reads a state to go on from.
        folder = TrainingFolder(path=training_path(output), fingerprint=fingerprint)
        return _trained(pair, config, data, folder, on_progress)[1]
    check_output_folder(output, overwrite)
    with open_training_folder(training_path(output), fingerprint) as folder:
        student, result = _trained(pair, config, data, folder, on_progress)

        def finish_folder(made: Path) -> None:
            if finish is not None:
                finish(made, result.training)

        clamped = write_decoder(
            student, pair.student, output, overwrite=overwrite, finish=finish_folder
        )
    return DistillResult(
        path=output, training=result.training, memory=result.memory, clamped=clamped
    )


def _with_stored(
    pair: Pair,
    config: DistillConfig,
    data: LearnedData,
    on_progress: OnProgress | None,
) -> Pair:
    """Returns the pair with the teacher's distributions, which the first process writes."""
    if config.teacher_logits is None:
        return pair
    assert isinstance(data, TrainingData), "encoders read no stored distributions"
    train, folder = config.train, config.teacher_logits.folder
    text = StoredText.of(
        pair.teacher,
        [data.rows] if data.held_out is None else [data.rows, data.held_out],
        config.teacher_logits.kept,
        train.chosen_arithmetic,
    )
    if pair.peers is None or pair.peers.is_first:
        write_teacher_logits(
            folder,
            text,
            device=train.device,
            num_threads=train.num_threads,
            on_progress=on_progress,
        )
    if pair.peers is not None:
        pair.peers.share(True)  # the others wait until it is there
    return replace(pair, stored=StoredTeacher.open(folder, text))


def _trained(
    pair: Pair,
    config: DistillConfig,
    data: LearnedData,
    folder: TrainingFolder,
    on_progress: OnProgress | None,
) -> tuple[Decoder, DistillResult]:
    num_threads = resolve_num_threads(config.train.num_threads)
    layout, memory = choose_layout(_size(pair, config, data), num_threads)
    student = Decoder.from_checkpoint(pair.student)
    lesson = _lesson(student, pair, config, data)
    training = _training(student, lesson, pair, config, data)
    result = train(training, config.train, layout, folder, on_progress)
    result = replace(result, notes=lesson.notes())
    return student, DistillResult(path=None, training=result, memory=memory, clamped={})


def _lesson(student: Decoder, pair: Pair, config: DistillConfig, data: LearnedData) -> Lesson:
    fuse_attention(student)
    method = find_method(config.method)
    teacher = None
    if method.needs_teacher and pair.stored is None:
        teacher = DecoderTeacher.load(
            pair.teacher, config.train.chosen_arithmetic, config.train.device
        )
    tokenizer = Tokenizer.open(pair.student.path) if method.samples else None
    setting = Setting(
        student=student,
        teacher=teacher,
        options=config.options,
        rows=data.rows,
        train=config.train,
        stop_ids=frozenset() if tokenizer is None else frozenset(tokenizer.eos_token_ids),
        decode=None if tokenizer is None else tokenizer.decode,
        stored=pair.stored,
    )
    return method.lesson(setting)


def _training(
    student: Decoder, lesson: Lesson, pair: Pair, config: DistillConfig, data: LearnedData
) -> Training:
    parameters: dict[str, Tensor] = trained_parameters(
        student, trains_tables=True, kept=pair.student.own_head
    )
    assert not parameters.keys() & lesson.parameters.keys()
    held_out = None
    if data.held_out is not None and find_method(config.method).is_judged:
        held_out = HeldOut(rows=data.held_out, patience=config.patience)
    return Training(
        student=student,
        parameters=parameters | dict(lesson.parameters),
        source=lesson.source,
        objective=lesson.objective,
        held=held_zeros(student, pair.student),
        held_out=held_out,
        peers=pair.peers,
    )


def _size(pair: Pair, config: DistillConfig, data: LearnedData) -> TrainingSize:
    spec, teacher = pair.student.spec, pair.teacher.spec
    method = find_method(config.method)
    return TrainingSize(
        spec=spec,
        num_trained=spec.num_parameters() - spec.num_router_parameters(),
        num_held=spec.num_linear_parameters(),
        trains_tables=True,
        row_tokens=data.rows.num_tokens,
        step_rows=config.train.step_rows(data.rows.num_tokens),
        arithmetic=config.train.chosen_arithmetic,
        device=config.train.device,
        teacher=teacher if method.needs_teacher and pair.stored is None else None,
        keeps_best=data.held_out is not None and method.is_judged,
        sampled_tokens=_sampled_tokens(config) if method.samples else 0,
        stored_bytes=0 if pair.stored is None else pair.stored.held_bytes,
        lesson=method.size(config.options, spec, teacher),
    )


def _sampled_tokens(config: DistillConfig) -> int:
    """Returns the tokens of a step of sampled texts, whose keys and values both models keep."""
    row_tokens = config.options.prompt_tokens + config.options.new_tokens
    num_each = config.options.num_answers if find_method(config.method).compares_answers else 1
    return max(config.train.step_rows(row_tokens), num_each) * row_tokens


def _fingerprint(pair: Pair, config: DistillConfig, data: LearnedData) -> str:
    parts = (
        source_digest(pair.student),
        source_digest(pair.teacher),
        config.train.fingerprint(),
        repr((config.method, config.options, config.patience)),
        data.rows.digest,
        "" if data.held_out is None else data.held_out.digest,
        "" if pair.stored is None else pair.stored.digest,
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
