"""Cut models: the KL divergence to the original before compensation, after it, and after training
for equal numbers of tokens by KL, by the text alone, and from random weights."""

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.kept_models import KeptModels
from benchmarks.pruning.zeros import quality_of
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.cut.cut import cut
from paredown.compress.cut.ffn import CutNeurons
from paredown.compress.cut.layers import CutLayers
from paredown.distill.losses.cross_entropy import CrossEntropy
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


def cut_of(name: str, num_layers: int) -> Cuts:
    """Returns a quarter of the neurons ("ffn"), or about every seventh layer."""
    return CutNeurons(share=0.25) if name == "ffn" else CutLayers(num=max(1, num_layers // 7))


def measure_cut(
    measured: Measured, step: Cuts, ways: list[str], models: KeptModels
) -> dict[str, Any]:
    """Returns the quality of each way by its name, the minutes that it took, and what came out."""
    reference = measured.reference()
    rows = measured.rows() if ways else None
    found: dict[str, Any] = {}
    for name in ("cut", "compensated", *ways):

        def make(path: Path, name: str = name) -> dict[str, Any]:
            if name in ("cut", "compensated"):
                own = step if name == "compensated" else replace(step, compensation=None)
                done = make_cut(measured, own, path)
            else:
                assert rows is not None
                done = train(start_of(name, models), measured, rows, name, path)
            return done | quality_of(path, measured.text, reference)

        found[name] = models.figures(name, make)
        print(f"{name}: {found[name]}", file=sys.stderr)
    return found


def make_cut(measured: Measured, step: Cuts, output: Path) -> dict[str, Any]:
    began = time.perf_counter()
    result = cut(measured.source, output, (step,), measured.calibration, overwrite=True)
    minutes = (time.perf_counter() - began) / 60
    return {"minutes": minutes, "share": result.share, "kept_layers": result.kept_layers}


def start_of(way: str, models: KeptModels) -> Checkpoint:
    """Returns the compensated model, or one of its shape with random weights."""
    compensated = Checkpoint.open(models.model("compensated"))
    if way != "random":
        return compensated
    start = models.model("random-weights")
    write_random(compensated, start)
    return Checkpoint.open(start)


def train(
    student: Checkpoint, measured: Measured, rows: TrainingRows, way: str, output: Path
) -> dict[str, Any]:
    """Trains a student by KL, or by cross-entropy ("text")."""
    config = RecoverConfig(train=TrainConfig(num_tokens=measured.num_tokens))
    if way == "text":
        config = replace(config, loss=CrossEntropy())
    done = recover(student, measured.source, output, config, rows.rows, overwrite=True)
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
    write_decoder(decoder, shape, output, overwrite=True)
