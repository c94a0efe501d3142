"""Trains a head and its encoder on a GLUE task, by the training loop of `paredown distill`."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.checkpoints.classifier import write_classifier
from paredown.distill.adamw import AdamWConfig
from paredown.distill.data.encoder_data import EncoderData, Example, encoder_data
from paredown.distill.data.training_data import TrainingDataConfig
from paredown.distill.distill import DistillConfig, Pair, distill
from paredown.distill.train_config import TrainConfig
from paredown.evaluate.tasks.glue import GlueTask, find_task
from paredown.evaluate.tasks.glue_file import GlueExamples, read_glue
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer
from paredown.models.text.whole_text import WholeText
from paredown.progress import OnProgress

ROW_TOKENS = 128
SEED = 0


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """`num_epochs` passes over the first `num_rows` rows of the training file (None: all), in steps
    of `step_rows` packed rows."""

    num_epochs: int
    step_rows: int
    num_rows: int | None = None


# Both take about as long: half of SST-2's phrases once, or MRPC's pairs three times.
RECIPES = {
    "sst2": Recipe(num_epochs=1, step_rows=4, num_rows=30_000),
    "mrpc": Recipe(num_epochs=3, step_rows=8),
}


def train_classifier(
    encoder: Path, name: str, training_file: Path, output: Path, on_progress: OnProgress
) -> dict[str, float]:
    """Writes the classifier `output`. Returns what the training took."""
    task = find_task(name)
    started, started_cpu = time.monotonic(), time.process_time()
    with TemporaryDirectory(prefix="paredown-") as folder:
        begun = Path(folder) / "classifier"
        write_classifier(encoder, begun, task.label_names, SEED)
        student = Checkpoint.open(begun)
        data = training_data(student, training_examples(name, training_file))
        config = DistillConfig(method="hard-label", train=train_config(name, data))
        pair = Pair(student=student, teacher=student)
        made = distill(pair, output, config, data, on_progress=on_progress)
    return {
        "num_texts": data.rows.num_texts,
        "num_steps": len(made.training.records),
        "final_loss": made.training.final_loss,
        "elapsed_s": time.monotonic() - started,
        "processor_s": time.process_time() - started_cpu,
    }


def train_config(name: str, data: EncoderData) -> TrainConfig:
    """Returns the steps of the task's recipe."""
    recipe = RECIPES[name]
    return TrainConfig(
        num_tokens=recipe.num_epochs * data.rows.num_rows * ROW_TOKENS,
        batch_tokens=recipe.step_rows * ROW_TOKENS,
        learning_rate=7e-5,
        final_learning_rate=0.0,
        warmup_share=0.1,
        optimizer=AdamWConfig(betas=(0.9, 0.98), weight_decay=0.01),
        seed=SEED,
    )


def training_examples(name: str, training_file: Path) -> GlueExamples:
    """Returns the rows that the task's recipe takes of the file."""
    return read_glue(find_task(name), training_file).first(RECIPES[name].num_rows)


def training_data(student: Checkpoint, examples: GlueExamples) -> EncoderData:
    """Returns the examples as a student reads them."""
    whole = WholeText(tokenizer=Tokenizer.open(student.path), max_tokens=ROW_TOKENS)
    return encoder_data(
        _examples(examples.task, examples),
        TrainingDataConfig(row_tokens=ROW_TOKENS, held_out=0.0),
        whole,
        examples.task.label_names,
        num_tokens=10**9,
        source=examples.path.name,
    )


def _examples(task: GlueTask, examples: GlueExamples) -> Iterator[Example]:
    for row, label in zip(examples.texts, examples.labels, strict=True):
        pair = row[1] if len(task.sentences) == 2 else None
        yield Example(text=row[0], pair=pair, label=int(label))
