"""Trains tiny models in float32, so that runs can be compared; imports nothing that only tests
need, because killed runs use it in a process of their own."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from paredown.distill.adamw import AdamWConfig
from paredown.distill.forward import fuse_attention
from paredown.distill.layout import Layout
from paredown.distill.objective import Objective
from paredown.distill.recover import RecoverConfig, RecoverResult, recover, trained_parameters
from paredown.distill.row_batches import RowBatches
from paredown.distill.rows import Rows
from paredown.distill.train_config import TrainConfig
from paredown.distill.trainer import Training, TrainResult, train
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder

VOCAB_SIZE = 300
WHOLE = Layout(part_rows=64, num_workers=1, threads_each=1, recomputes=False)


def random_rows(num_rows: int, num_tokens: int, seed: int = 3) -> Rows:
    rng = np.random.default_rng(seed)
    return Rows.from_windows(rng.integers(0, VOCAB_SIZE, (num_rows, num_tokens)))


def uneven_rows(counts: Sequence[int], num_tokens: int, seed: int = 3) -> Rows:
    """Rows with that many targets each, at their beginning."""
    rows = random_rows(len(counts), num_tokens, seed)
    places_T = np.arange(num_tokens)
    is_target_NT = (places_T > 0) & (places_T <= np.array(counts)[:, None])
    return Rows(tokens_NT=rows.tokens_NT, is_target_NT=is_target_NT)


def config(num_tokens: int, **changes: object) -> TrainConfig:
    """Steps of one row of 8 tokens, unless `changes` say otherwise."""
    fields: dict[str, object] = {"batch_tokens": 8, "arithmetic": "fp32", "num_threads": 1}
    return TrainConfig(num_tokens=num_tokens, **(fields | changes))  # type: ignore[arg-type]


def smooth_adam(**changes: float) -> AdamWConfig:
    """An optimizer whose first step is nearly the gradient, and not only its sign."""
    return AdamWConfig(**({"eps": 1.0, "clip_norm": 1e9} | changes))  # type: ignore[arg-type]


def train_copy(
    folder: Path,
    rows: Rows,
    objective: Objective,
    options: TrainConfig,
    layout: Layout = WHOLE,
) -> tuple[Decoder, TrainResult]:
    """Trains the model in `folder` and leaves the folder as it is."""
    student = Decoder.from_checkpoint(Checkpoint.open(folder))
    fuse_attention(student)
    parameters = trained_parameters(student, trains_tables=True)
    source = RowBatches.of(rows, options)
    training = Training(student=student, parameters=parameters, source=source, objective=objective)
    return student, train(training, options, layout)


def recover_until(
    folders: tuple[Path, Path, Path], settings: RecoverConfig, rows: Rows, stop_at: float = 2.0
) -> RecoverResult:
    """Recovers `folders` (pruned, original, output) and kills the process at a share of the
    work."""

    def kill(what: str, now: float) -> None:
        if now >= stop_at:
            os.kill(os.getpid(), signal.SIGKILL)

    pruned, original, output = folders
    return recover(
        Checkpoint.open(pruned),
        Checkpoint.open(original),
        output,
        settings,
        rows,
        on_progress=kill,
    )
