"""The texts that a sensitivity is measured on, and those that static ranges are found on."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from paredown.compress.calibrate.calibration import Calibration
from paredown.engine.encode.encoder_model import EncoderModel, encoder_model
from paredown.errors import ConfigError, UnsupportedError
from paredown.evaluate.quality.simulated import PointTap, Variant, applied
from paredown.evaluate.quality.simulated_texts import watch_points
from paredown.evaluate.quality.task_quality import BATCH_TEXTS, TaskTexts
from paredown.evaluate.tasks.glue import find_task
from paredown.evaluate.tasks.glue_file import read_glue_sets, read_glue_training
from paredown.evaluate.tasks.glue_texts import glue_texts
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.text.tokenizer import Tokenizer
from paredown.optimize.point_rounding import RunBatch

# The batches that static ranges are found on.
NUM_BATCHES = 16


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """`name` is a GLUE task ("glue-sst2"), `path` its file or folder (None: under $PAREDOWN_DATA),
    of which the first `num_rows` are measured (None: all). `batch_texts` are computed together.
    Raises ConfigError for a batch without a text."""

    name: str
    path: Path | None = None
    num_rows: int | None = None
    batch_texts: int = BATCH_TEXTS

    def __post_init__(self) -> None:
        if self.batch_texts < 1:
            raise ConfigError(
                "a batch needs a text", seen=self.batch_texts, remedy="Give --batch 1 or more."
            )


def check_generates(checkpoint: Checkpoint) -> None:
    """Raises UnsupportedError for an encoder, which predicts no text, and for an encoder-decoder,
    which has two stacks of layers."""
    if checkpoint.spec.encoder is not None:
        raise UnsupportedError(
            "parts are measured in one stack of layers, and an encoder-decoder has two",
            seen=f"{checkpoint.path}: {checkpoint.spec.family}",
            remedy="Compress it by the recipes in question: each proof says how far predictions "
            "moved.",
        )
    if not checkpoint.spec.generates:
        raise UnsupportedError(
            "an encoder predicts no text to measure",
            seen=f"{checkpoint.path}: {checkpoint.spec.family}",
            remedy="Name a task with --task (glue-sst2, glue-mrpc, glue-stsb, ...).",
        )


def task_texts(checkpoint: Checkpoint, config: TaskConfig) -> TaskTexts:
    """Returns the texts of the task as the encoder reads them. Raises ConfigError for a task that
    it cannot do, and UnsupportedError for a model that predicts tokens."""
    model = _encoder(checkpoint)
    task = find_task(config.name)
    # MNLI has two sets; parts are compared on the first.
    examples = read_glue_sets(task, config.path)[0].first(config.num_rows)
    texts = glue_texts(model, examples, config.batch_texts)
    batches = f"batches of at most {config.batch_texts} texts of one length"
    return replace(texts, protocol=f"{texts.protocol}, in {batches}")


def task_batches(
    checkpoint: Checkpoint, decoder: Decoder, config: TaskConfig
) -> tuple[list[RunBatch], str]:
    """Returns what runs the decoder on the first batches of the task's training file, and where
    they come from. Raises ConfigError where there is no such file."""
    examples = read_glue_training(find_task(config.name), config.path)
    num_texts = NUM_BATCHES * config.batch_texts
    texts = glue_texts(_encoder(checkpoint), examples.first(num_texts)).texts[:num_texts]
    parts = [
        texts[start : start + config.batch_texts]
        for start in range(0, len(texts), config.batch_texts)
    ]

    def runner(part: int) -> RunBatch:
        return lambda taps: watch_points(decoder, parts[part], taps)

    source = f"{len(parts)} batches of {config.batch_texts} texts of {examples.path.name}"
    return [runner(part) for part in range(len(parts))], source


def window_batches(decoder: Decoder, windows: Calibration) -> tuple[list[RunBatch], str]:
    """Returns what runs the decoder on each of the windows, and where they come from."""

    def runner(window: int) -> RunBatch:
        def run(taps: Mapping[str, PointTap]) -> None:
            with torch.inference_mode(), applied(decoder, Variant(taps=taps)):
                decoder(torch.from_numpy(windows.windows_NT[window : window + 1]))

        return run

    return [runner(window) for window in range(len(windows.windows_NT))], windows.source


def _encoder(checkpoint: Checkpoint) -> EncoderModel:
    if checkpoint.spec.generates:
        raise UnsupportedError(
            "tasks of labels are for encoders",
            seen=f"{checkpoint.path}: {checkpoint.spec.family}, which predicts tokens",
            remedy="Name an encoder, or leave --task out.",
        )
    return encoder_model(checkpoint, Tokenizer.open(checkpoint.path))
