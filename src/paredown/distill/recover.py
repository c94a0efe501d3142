"""Recovery: trains a pruned model against the model it was made from, so that it gets back what
pruning took.

The student learns the teacher's whole distribution at each token (knowledge distillation, arXiv
1503.02531; of pruned models, arXiv 2407.14679). Zeros of pruned matrices stay exactly 0.
"""

import hashlib
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from paredown.compress.calibrate.source_digest import source_digest
from paredown.compress.require_floats import require_floats
from paredown.distill.forward import fuse_attention
from paredown.distill.held_zeros import held_zeros
from paredown.distill.losses.kl import KL
from paredown.distill.losses.token_loss import TokenLoss
from paredown.distill.memory import TrainingMemory, TrainingSize, choose_layout
from paredown.distill.row_batches import RowBatches
from paredown.distill.rows import BatchRows
from paredown.distill.same_vocabulary import check_same_vocabulary
from paredown.distill.teacher import DecoderTeacher
from paredown.distill.text_objective import loss_for, objective_for
from paredown.distill.train_config import TrainConfig
from paredown.distill.trainer import Training, TrainResult, train
from paredown.distill.training_folder import open_training_folder, training_path
from paredown.kernels.probe import resolve_num_threads
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.write import write_decoder
from paredown.models.files.output_folder import Finish, check_output_folder
from paredown.progress import OnProgress
from paredown.spec.model import ModelSpec


@dataclass(frozen=True, kw_only=True)
class RecoverConfig:
    """`train` has the budget. `loss` is what a target costs; an encoder without labels learns the
    original's vectors instead (text_objective.py). Norms and linear layers are trained;
    with `trains_tables` the embedding and the output layer are, too. Routers are not."""

    train: TrainConfig
    loss: TokenLoss = field(default_factory=KL)
    trains_tables: bool = False


@dataclass(frozen=True, kw_only=True)
class RecoverResult:
    """A folder that `recover` wrote. `num_held` counts the zeros that were kept, `clamped` the
    values by tensor that were out of the range of their dtype."""

    path: Path
    training: TrainResult
    memory: TrainingMemory
    num_held: int
    clamped: Mapping[str, int]


def recover(
    pruned: Checkpoint,
    original: Checkpoint,
    output: Path,
    config: RecoverConfig,
    rows: BatchRows,
    *,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
    finish: Finish | None = None,
) -> RecoverResult:
    """Trains `pruned` on `rows` against `original` and writes the folder `output`, which appears
    whole or not at all; `finish` sees it before. A run that was killed goes on from its last saved
    state when it is started again.

    Raises ConfigError for a budget smaller than one step, UnsupportedError for weights that are no
    floats and for vocabularies that differ, CapacityError for a training that does not fit in
    memory, TrainingError when it goes astray, and OutputError where something cannot be written.
    """
    check_output_folder(output, overwrite)
    require_floats(pruned)
    check_same_vocabulary(pruned, original)
    step_rows = config.train.step_rows(rows.num_tokens)
    config.train.budget.check(step_rows * rows.num_tokens)
    num_threads = resolve_num_threads(config.train.num_threads)
    layout, memory = choose_layout(_size(pruned, original, config, rows), num_threads)
    with open_training_folder(
        training_path(output), _fingerprint(pruned, original, config, rows)
    ) as folder:
        student = Decoder.from_checkpoint(pruned)
        held = held_zeros(student, pruned)
        training = _training(student, pruned, original, config, rows, held)
        result = train(training, config.train, layout, folder, on_progress)
        clamped = write_decoder(student, pruned, output, overwrite=overwrite, finish=finish)
    return RecoverResult(
        path=output,
        training=result,
        memory=memory,
        num_held=sum(int(mask.sum()) for mask in held.values()),
        clamped=clamped,
    )


def trained_parameters(
    decoder: Decoder, *, trains_tables: bool, kept: Container[str] = ()
) -> dict[str, Tensor]:
    """Returns the parameters that a recovery trains, by name. Those in `kept` stay: the head's that
    lie in files of their own, which are copied."""
    routers = {
        f"layers.{index}.{role}.weight"
        for index in range(decoder.spec.num_layers)
        for role in decoder.spec.router_shapes(index)
    }
    tables = ("embedding.", "position_embedding.", "token_type_embedding.", "output.")
    return {
        name: parameter
        for name, parameter in decoder.named_parameters()
        if name not in routers
        and name not in kept
        and (trains_tables or not name.startswith(tables))
    }


def _training(
    student: Decoder,
    pruned: Checkpoint,
    original: Checkpoint,
    config: RecoverConfig,
    rows: BatchRows,
    held: Mapping[str, Tensor],
) -> Training:
    fuse_attention(student)
    teacher = None
    if loss_for(student.spec, config.loss).needs_teacher:
        teacher = DecoderTeacher.load(original, config.train.chosen_arithmetic, config.train.device)
    return Training(
        student=student,
        parameters=trained_parameters(
            student, trains_tables=config.trains_tables, kept=pruned.own_head
        ),
        source=RowBatches.of(rows, config.train),
        objective=objective_for(student.spec, config.loss, teacher),
        held=held,
    )


def _size(
    pruned: Checkpoint, original: Checkpoint, config: RecoverConfig, rows: BatchRows
) -> TrainingSize:
    spec = pruned.spec
    return TrainingSize(
        spec=spec,
        num_trained=spec.num_parameters() if config.trains_tables else num_without_tables(spec),
        num_held=spec.num_linear_parameters(),
        trains_tables=config.trains_tables,
        row_tokens=rows.num_tokens,
        step_rows=config.train.step_rows(rows.num_tokens),
        arithmetic=config.train.chosen_arithmetic,
        device=config.train.device,
        teacher=original.spec if loss_for(spec, config.loss).needs_teacher else None,
    )


def num_without_tables(spec: ModelSpec) -> int:
    """Counts the values of norms, biases and linear layers."""
    tables = spec.vocab_size * spec.hidden_size * (2 if spec.has_own_output else 1)
    return spec.num_parameters() - tables - spec.num_router_parameters()


def _fingerprint(
    pruned: Checkpoint, original: Checkpoint, config: RecoverConfig, rows: BatchRows
) -> str:
    parts = (
        source_digest(pruned),
        source_digest(original),
        config.train.fingerprint(),
        repr(config.loss),
        str(config.trains_tables),
        rows.digest,
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
