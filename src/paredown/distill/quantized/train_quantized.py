"""Training under quantization: a quantized model computes with its codes while it is trained, and
what is written are these codes.

QAD     the loss is the KL divergence from the original, without labels (arXiv 2601.20088); of an
        encoder the distance from its vectors
QAT     the loss is the cross-entropy of a text
LLM-QAT QAD on text that the original makes (arXiv 2305.17888)
scales  QAD of the scales alone (the second stage of EfficientQAT, arXiv 2407.11062)
"""

import hashlib
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from paredown.compress.calibrate.source_digest import source_digest
from paredown.distill.forward import fuse_attention
from paredown.distill.losses.kl import KL
from paredown.distill.losses.token_loss import TokenLoss
from paredown.distill.memory import TrainingMemory, TrainingSize, choose_layout
from paredown.distill.quantized.quantized_decoder import (
    check_trainable,
    quantize_layer,
    quantized_decoder,
    quantized_modules,
)
from paredown.distill.quantized.quantized_linear import QuantizedLinear
from paredown.distill.quantized.trained_grids import TrainedGrids
from paredown.distill.quantized.write_quantized import WrittenCodes, write_quantized
from paredown.distill.recover import num_without_tables, trained_parameters
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
from paredown.models.decoder.layer import Layer
from paredown.models.files.output_folder import check_output_folder
from paredown.progress import OnProgress

# Ends the names of learned scales, which are factors of about 1.
_FACTORS = ".steps.factors"
# Weights and scales learn best alone at such rates (docs/methods/quantized_training.md).
_SCALE_RATE = 30.0


@dataclass(frozen=True, kw_only=True)
class QuantizedTrainConfig:
    """`train` has the budget, `loss` is what a target costs, and `grids` say what is trained of
    quantized weights. With their codes, norms, biases and linear layers in floats are trained.
    Embedding, output layer and routers never are."""

    train: TrainConfig
    loss: TokenLoss = field(default_factory=KL)
    grids: TrainedGrids = field(default_factory=TrainedGrids)


@dataclass(frozen=True, kw_only=True)
class TrainedFrom:
    """The quantized checkpoint `start` learns from `original`. `floats` is what it was rounded
    from, where its layers mean the same; weights then begin near these (quantized_linear.py)."""

    start: Checkpoint
    original: Checkpoint
    floats: Checkpoint | None = None


@dataclass(frozen=True, kw_only=True)
class QuantizedTrainResult:
    """The folder `path` that `train_quantized` wrote. `moved_share` is the share of its codes that
    training changed, `clamped` counts by tensor the floats that were out of their dtype's range."""

    path: Path
    training: TrainResult
    memory: TrainingMemory
    moved_share: float
    clamped: Mapping[str, int]


# Called with the whole folder, before it gets its name, and with the result.
FinishTraining = Callable[[Path, QuantizedTrainResult], None]


def train_quantized(
    models: TrainedFrom,
    output: Path,
    config: QuantizedTrainConfig,
    rows: BatchRows,
    *,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
    finish: FinishTraining | None = None,
) -> QuantizedTrainResult:
    """Trains the quantized checkpoint on `rows` and writes the folder `output`, which appears whole
    or not at all; `finish` sees it before. A run that was killed goes on from its last saved state.

    Raises ConfigError for a budget smaller than one step, UnsupportedError for a start without
    codes that can be trained and for vocabularies that differ, CapacityError for a training that
    does not fit in memory, TrainingError when it goes astray, and OutputError where something
    cannot be written.
    """
    start, original = models.start, models.original
    check_output_folder(output, overwrite)
    check_trainable(start)
    check_same_vocabulary(start, original)
    step_rows = config.train.step_rows(rows.num_tokens)
    config.train.budget.check(step_rows * rows.num_tokens)
    num_threads = resolve_num_threads(config.train.num_threads)
    layout, memory = choose_layout(_size(start, original, config, rows), num_threads)
    fingerprint = _fingerprint(models, config, rows)
    with open_training_folder(training_path(output), fingerprint) as folder:
        student = quantized_decoder(start, config.grids, models.floats)
        fuse_attention(student)
        teacher = None
        if loss_for(start.spec, config.loss).needs_teacher:
            teacher = DecoderTeacher.load(
                original, config.train.chosen_arithmetic, config.train.device
            )
        training = Training(
            student=student,
            parameters=quantized_parameters(student, config.grids, start.own_head),
            source=RowBatches.of(rows, config.train),
            objective=objective_for(student.spec, config.loss, teacher),
            held=held_codes(student, start),
            rate_factors=scale_rate_factors(student) if config.grids.trains_codes else {},
        )
        result = train(training, config.train, layout, folder, on_progress)

        def told(written: WrittenCodes) -> QuantizedTrainResult:
            return QuantizedTrainResult(
                path=output,
                training=result,
                memory=memory,
                moved_share=written.moved_share,
                clamped=written.clamped,
            )

        def finished(place: Path, written: WrittenCodes) -> None:
            if finish is not None:
                finish(place, told(written))

        return told(write_quantized(student, start, output, overwrite=overwrite, finish=finished))


def quantized_parameters(
    decoder: Decoder, grids: TrainedGrids, kept: Container[str] = ()
) -> dict[str, Tensor]:
    """Returns the parameters that are trained, by name, without those in `kept`."""
    found = trained_parameters(decoder, trains_tables=False, kept=kept)
    if grids.trains_codes:
        return found
    return {name: one for name, one in found.items() if name.endswith(_FACTORS)}


def scale_rate_factors(decoder: Decoder) -> dict[str, float]:
    """Returns how much faster than weights the learned scales are moved."""
    names = (name for name, _ in decoder.named_parameters() if name.endswith(_FACTORS))
    return dict.fromkeys(names, _SCALE_RATE)


def held_codes(decoder: Decoder, start: Checkpoint) -> dict[str, Tensor]:
    """Returns a mask of the zeros of each pruned linear layer, by the parameter's name. Only what
    the files record as pruned counts: at few bits many weights are 0 by chance."""
    modules = quantized_modules(decoder)
    found = {}
    for index in range(decoder.spec.num_layers):
        for role in decoder.spec.linear_shapes(index):
            name = f"layers.{index}.{role}"
            is_trained = isinstance(modules.get(name), QuantizedLinear) or name not in modules
            if is_trained and start.linear_name(role, index) in start.pruned:
                found[f"{name}.weight"] = decoder.get_parameter(f"{name}.weight").detach() == 0
    return found


def _size(
    start: Checkpoint, original: Checkpoint, config: QuantizedTrainConfig, rows: BatchRows
) -> TrainingSize:
    num_codes, num_scales = _counts(start)
    num_factors = num_scales if config.grids.rule == "learned" else 0
    trains_codes = config.grids.trains_codes

    def prepare(layer: Layer) -> None:
        quantize_layer(layer, start, config.grids)

    return TrainingSize(
        spec=start.spec,
        num_trained=num_factors + (num_without_tables(start.spec) if trains_codes else 0),
        num_held=num_codes if start.pruned else 0,
        trains_tables=False,
        row_tokens=rows.num_tokens,
        step_rows=config.train.step_rows(rows.num_tokens),
        arithmetic=config.train.chosen_arithmetic,
        device=config.train.device,
        teacher=original.spec if config.loss.needs_teacher else None,
        grid_bytes=12 * num_scales + (0 if trains_codes else num_codes),
        prepare=prepare,
    )


def _counts(start: Checkpoint) -> tuple[int, int]:
    """Counts the codes and the scales of all layers."""
    num_codes = num_scales = 0
    for index in range(start.spec.num_layers):
        for role, shape in start.spec.linear_shapes(index).items():
            module = start.linear_name(role, index)
            if module in start.forms:
                size = start.forms[module].spec.group_size or shape[1]
                num_codes += shape[0] * shape[1]
                num_scales += shape[0] * -(-shape[1] // size)
    return num_codes, num_scales


def _fingerprint(models: TrainedFrom, config: QuantizedTrainConfig, rows: BatchRows) -> str:
    parts = (
        source_digest(models.start),
        source_digest(models.original),
        "" if models.floats is None else source_digest(models.floats),
        config.train.fingerprint(),
        repr(config.loss),
        repr(config.grids),
        rows.digest,
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
