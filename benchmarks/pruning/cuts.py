"""Cut models: the KL divergence to the original before compensation, after it, and after training
for equal numbers of tokens by KL, by the text alone, and from random weights."""

import sys
import time
from dataclasses import dataclass, replace
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
    plain = replace(step, compensation=None)
    made = {}
    for name, own in (("cut", plain), ("compensated", step)):
        began = time.perf_counter()
        result = cut(measured.source, folder / name, (own,), measured.calibration)
        made[name] = result.path
        minutes = (time.perf_counter() - began) / 60
        found[name] = quality_of(result.path, measured.text, reference) | {"minutes": minutes}
        found["share"] = result.share
    rows = measured.rows()
    for way in ways:
        start = made["compensated"]
        if way == "random":
            start = folder / "random-weights"
            write_random(Checkpoint.open(made["compensated"]), start)
        done = train(Checkpoint.open(start), measured, rows, way, folder / way)
        found[way] = quality_of(folder / way, measured.text, reference) | done
        print(f"{way}: {found[way]}", file=sys.stderr)
    return found


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
