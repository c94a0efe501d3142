"""Cut models: the KL divergence to the original before compensation, after it, and after training
for equal numbers of tokens by KL, by the text alone, and from random weights.

Models stay in the folder that is given, each with its figures, and a later run goes on from them.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.pruning.zeros import quality_of
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.cut.cut import cut
from paredown.compress.cut.ffn import CutNeurons
from paredown.compress.cut.layers import CutLayers
from paredown.distill.cross_entropy import CrossEntropy
from paredown.distill.recover import RecoverConfig, recover
from paredown.distill.train_config import TrainConfig
from paredown.evaluate.quality.quality import num_pages_for
from paredown.evaluate.texts.text import EvalText
from paredown.evaluate.texts.training_text import TrainingTextConfig
from paredown.executors.load import load_executor
from paredown.executors.protocol import LoadedExecutor
from paredown.executors.run_options import RunOptions
from paredown.jobs.training_rows import TrainingRows, training_rows
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.write import write_decoder

Cuts = CutNeurons | CutLayers


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A model on which cuts are measured."""

    source: Checkpoint
    text: EvalText
    calibration: Calibration
    num_tokens: int

    def reference(self) -> LoadedExecutor:
        return load_executor(self.source, RunOptions(num_pages=num_pages_for(self.text)))

    def rows(self) -> TrainingRows:
        return training_rows(self.source, TrainingTextConfig(num_tokens=self.num_tokens), None)


def measure_cut(measured: Measured, step: Cuts, ways: list[str], folder: Path) -> dict[str, Any]:
    """Returns the quality of each way by its name, the minutes that it took, and what came out."""
    reference = measured.reference()
    found: dict[str, Any] = {}

    def measure(name: str, make: Callable[[Path], dict[str, Any]]) -> None:
        figures = folder / f"{name}.json"
        if not figures.exists():
            began = time.perf_counter()
            done = make(folder / name)
            done = {"minutes": (time.perf_counter() - began) / 60} | done
            done |= quality_of(folder / name, measured.text, reference)
            figures.write_text(json.dumps(done, indent=2) + "\n")
        found[name] = json.loads(figures.read_text())
        print(f"{name}: {found[name]}", file=sys.stderr)

    measure("cut", lambda path: make_cut(measured, replace(step, compensation=None), path))
    measure("compensated", lambda path: make_cut(measured, step, path))
    found["share"] = found["compensated"]["share"]
    rows = measured.rows()
    for way in ways:
        measure(way, partial(train_way, measured, rows, way, folder / "compensated"))
    return found


def train_way(
    measured: Measured, rows: TrainingRows, way: str, compensated: Path, output: Path
) -> dict[str, Any]:
    """Trains the compensated model, or one of its shape with random weights."""
    start = compensated
    if way == "random":
        start = output.with_name("random-weights")
        if not start.exists():
            write_random(Checkpoint.open(compensated), start)
    return train(Checkpoint.open(start), measured, rows, way, output)


def make_cut(measured: Measured, step: Cuts, output: Path) -> dict[str, Any]:
    result = cut(measured.source, output, (step,), measured.calibration)
    return {"share": result.share, "kept_layers": result.kept_layers}


def train(
    student: Checkpoint, measured: Measured, rows: TrainingRows, way: str, output: Path
) -> dict[str, Any]:
    """Trains a student by KL, or by cross-entropy ("text")."""
    config = RecoverConfig(train=TrainConfig(num_tokens=measured.num_tokens))
    if way == "text":
        config = replace(config, loss=CrossEntropy())
    done = recover(student, measured.source, output, config, rows.rows)
    seconds = done.training.records[-1].elapsed_s
    return {"minutes": seconds / 60, "tokens_per_s": done.training.tokens_per_s}


def write_random(shape: Checkpoint, output: Path) -> None:
    """Writes a student of that shape with the usual random weights."""
    decoder = Decoder.from_checkpoint(shape)
    generator = torch.Generator().manual_seed(0)
    for name, parameter in decoder.named_parameters():
        if parameter.dim() == 2:
            parameter.data.normal_(0, 0.02, generator=generator)
        elif name.endswith("bias"):
            parameter.data.zero_()
        else:
            parameter.data.fill_(1)
    write_decoder(decoder, shape, output)
