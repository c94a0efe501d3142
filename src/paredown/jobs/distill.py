"""Distills a student from a teacher and measures it beside the teacher, in one folder."""

import hashlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from paredown.compress.calibrate.source_digest import source_digest
from paredown.distill.data.learned_data import LearnedData
from paredown.distill.distill import DistillConfig, DistillResult, Pair, distill
from paredown.distill.one_stack import check_one_stack
from paredown.distill.peers import Peers, joined_peers
from paredown.distill.students.make_student import make_student
from paredown.distill.students.student_choice import StudentChoice
from paredown.evaluate.quality.measurement import Measurement
from paredown.evaluate.verify.verification import Verification
from paredown.jobs.distillation_method import choose_method
from paredown.jobs.distillation_proof import DistillationProof
from paredown.jobs.distillation_text import distillation_text
from paredown.jobs.float_source import FloatSource, FromQuantized, float_source
from paredown.jobs.run_recipe import check_work_folders
from paredown.jobs.stages import Stages, open_stages, stages_path
from paredown.jobs.verify_config import VerifyConfig
from paredown.kernels.probe import resolve_num_threads
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.output_folder import check_output_folder
from paredown.progress import OnProgress

_VERIFY = VerifyConfig()
_STUDENT_STAGE = "0-student"


@dataclass(frozen=True, kw_only=True)
class DistilledCheckpoint:
    """A folder that `distill_checkpoint` wrote.

    `method`        how the student learned
    `source`        what it learned from
    `written`       its place, and its training step by step
    `notes`         what was left out, and how the training went
    `before`        the student as it started, on the text of the verification; None where it was
                    not measured
    `verification`  the student beside its teacher, as in verification.json
    `not_verified`  why it was not measured; None where it was
    """

    method: str
    source: str
    written: DistillResult
    notes: tuple[str, ...]
    before: Measurement | None
    verification: Verification | None
    not_verified: str | None

    def as_json(self) -> dict[str, object]:
        """Returns everything as `paredown distill --json` prints it."""
        training = self.written.training
        return {
            "path": str(self.written.path),
            "method": self.method,
            "source": self.source,
            "num_tokens": training.num_tokens,
            "num_targets": training.num_targets,
            "elapsed_s": training.records[-1].elapsed_s,
            "tokens_per_s": training.tokens_per_s,
            "first_loss": training.records[0].loss,
            "final_loss": training.final_loss,
            "held_out": [asdict(one) for one in training.judgements],
            "stopped_early": training.stopped_early,
            "predicted_bytes": self.written.memory.total,
            "notes": list(self.notes),
            "before": None if self.before is None else self.before.as_json(),
            "verification": None if self.verification is None else self.verification.figures(),
            "not_verified": self.not_verified,
        }


def distill_and_verify(
    teacher: Checkpoint | FromQuantized | Path | str | None,
    output: Path | str,
    config: DistillConfig,
    *,
    verify: VerifyConfig | None = _VERIFY,
    num_threads: int | None = None,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
) -> DistilledCheckpoint:
    """Trains a student to do what its teacher does, and writes it with the proof of what it lost.

    The student is measured beside the teacher through the engine that serves. A failure leaves no
    folder behind; a run that was stopped goes on when it is started again. Processes that
    `torchrun` starts train one student together, and the first of them writes it
    (docs/guide/distill.md).

    `teacher`      folder or .gguf file; None is the packaged model; a quantized model must be
                   inside FromQuantized(model=...) if the student is made from it
    `output`       folder to write; must not exist unless `overwrite` is set
    `config`       the student, the method, the text and the training
    `verify`       the text to measure on; None measures nothing and writes no verification.json
    `num_threads`  threads of everything; None is all cores
    `on_progress`  called with the current activity and the share of it that is done

    Raises ConfigError for an unknown student or a bad option, and for data with nothing to learn.
    Raises UnsupportedError for models that do not fit together, CheckpointError for a model or text
    that cannot be read, and CapacityError for a training that does not fit in memory. Raises
    TrainingError when the training goes astray, and OutputError if `output` exists or cannot be
    written.
    """
    output = Path(output)
    resolve_num_threads(num_threads)
    options = _Options(
        output=output,
        config=config,
        verify=verify,
        num_threads=num_threads,
        overwrite=overwrite,
        on_progress=on_progress,
    )
    with joined_peers() as peers:
        config.check_processes(1 if peers is None else peers.number)
        if peers is not None and not peers.is_first:
            return _help(peers, options)
        check_output_folder(output, overwrite)
        StudentChoice.parse(config.student)
        check_work_folders(output)
        with float_source(teacher, on_progress) as source:
            done = _lead(source, options, peers)
        return done if peers is None else peers.share(done)


@dataclass(frozen=True, kw_only=True)
class _Options:
    output: Path
    config: DistillConfig
    verify: VerifyConfig | None
    num_threads: int | None
    overwrite: bool
    on_progress: OnProgress | None


def _lead(source: FloatSource, options: _Options, peers: Peers | None) -> DistilledCheckpoint:
    """Does everything, with the help of the other processes where there are some."""
    output = options.output
    check_one_stack(source.original)
    config = _threaded(options.config, options.num_threads)
    with open_stages(stages_path(output), _fingerprint(source, config)) as stages:
        student = _student(source, config, stages)
        pair = Pair(student=student, teacher=source.original, peers=peers)
        config, why = choose_method(pair, config)
        pair.check(config)
        data = distillation_text(pair, config, options.num_threads)
        if peers is not None:
            peers.share((student.path, source.original.path, config.method, data))
        proof = DistillationProof(
            pair,
            f"{config.method} of {config.student}",
            options.verify,
            num_threads=options.num_threads,
            notes=(*source.notes, *why, *data.notes, *_stored_notes(config)),
            on_progress=options.on_progress,
        )
        written = distill(
            pair,
            output,
            config,
            data,
            overwrite=options.overwrite,
            on_progress=options.on_progress,
            finish=proof.write,
        )
    return DistilledCheckpoint(
        method=config.method,
        source=data.source,
        written=written,
        notes=proof.notes,
        before=proof.before,
        verification=proof.verification,
        not_verified=proof.not_verified,
    )


def _help(peers: Peers, options: _Options) -> DistilledCheckpoint:
    """Trains beside the first process, with what that has prepared."""
    shared: tuple[Path, Path, str, LearnedData] | None = None
    student, teacher, method, data = peers.share(shared)
    pair = Pair(student=Checkpoint.open(student), teacher=Checkpoint.open(teacher), peers=peers)
    config = replace(_threaded(options.config, options.num_threads), method=method)
    distill(pair, options.output, config, data)
    done: DistilledCheckpoint | None = None
    return peers.share(done)


def _threaded(config: DistillConfig, num_threads: int | None) -> DistillConfig:
    """Returns the config, whose training takes these threads unless it has its own number."""
    if config.train.num_threads is not None or num_threads is None:
        return config
    return replace(config, train=replace(config.train, num_threads=num_threads))


def _stored_notes(config: DistillConfig) -> tuple[str, ...]:
    kept = config.teacher_logits
    return (
        () if kept is None else (f"learned from distributions of the teacher kept as {kept.keep}",)
    )


def _student(source: FloatSource, config: DistillConfig, stages: Stages) -> Checkpoint:
    """Returns the student as it starts: the folder's own checkpoint, or one made for this run."""
    choice = StudentChoice.parse(config.student)
    if choice.folder is not None:
        return Checkpoint.open(choice.folder)

    def make(place: Path) -> tuple[str, ...]:
        make_student(source.floats, choice, place, config.train.seed)
        return ()

    return stages.make(_STUDENT_STAGE, make)


def _fingerprint(source: FloatSource, config: DistillConfig) -> str:
    """Returns a hash of what determines the bytes of the student as it starts."""
    choice = StudentChoice.parse(config.student)
    parts = (source_digest(source.floats), choice.fingerprint, str(config.train.seed))
    return hashlib.sha256("\n".join((*parts, torch.__version__)).encode()).hexdigest()
