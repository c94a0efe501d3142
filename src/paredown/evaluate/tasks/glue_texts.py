"""Brings a GLUE task to an encoder: how it reads the texts, and how its outputs are scored.

A classifier is scored on the label with the largest number. A model that makes a vector of each
text does STS-B alone: by the cosines of the vectors of each pair (arXiv 1908.10084). Shapes: N
rows, E outputs of a text.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paredown.engine.encode.encoder_model import EncoderModel
from paredown.engine.encode.read_pairs import read_pairs
from paredown.engine.encode.read_texts import ReadTexts, read_texts
from paredown.errors import ConfigError
from paredown.evaluate.quality.task_quality import BATCH_TEXTS, Outputs, TaskTexts
from paredown.evaluate.quality.vector_agreement import cosines
from paredown.evaluate.tasks.glue import GlueTask
from paredown.evaluate.tasks.glue_file import GlueExamples

# The names of labels that nobody has named.
_UNNAMED = re.compile(r"(label_)?\d+")


def glue_texts(
    model: EncoderModel, examples: GlueExamples, batch_texts: int = BATCH_TEXTS
) -> TaskTexts:
    """Returns the texts of the examples as the model reads them. Longer ones are cut. Raises
    ConfigError for a model that cannot do the task."""
    task = examples.task
    if model.kind == "classification":
        return _labelled(model, examples, batch_texts)
    if model.kind != "embedding" or not task.is_regression:
        raise ConfigError(
            f"this model cannot do {task.name}",
            seen=f"a model for {model.kind.replace('_', ' ')}",
            remedy="Name a classifier of the task's labels; a model that makes a vector of each "
            "text does STS-B.",
        )
    sides = [[row[side] for row in examples.texts] for side in (0, 1)]
    read = read_texts(model, [*sides[0], *sides[1]], truncate="end")
    return _task_texts(examples, read, _CosineScore(task, examples.labels), batch_texts)


def label_numbers(labels: Sequence[str], task: GlueTask) -> tuple[int, ...]:
    """Returns the task's number of each of a model's labels. They are told by their names; labels
    that have none are in the task's order. Raises ConfigError for labels of something else."""
    names = [re.sub(r"\W", "_", label.lower()) for label in labels]
    if sorted(names) == sorted(task.label_names):
        return tuple(task.label_names.index(name) for name in names)
    if len(names) == len(task.labels) and all(_UNNAMED.fullmatch(name) for name in names):
        return tuple(range(len(names)))
    raise ConfigError(
        f"the model's labels are not those of {task.name}",
        seen=", ".join(labels),
        remedy=f"Name a classifier of {', '.join(task.label_names)} (id2label in config.json).",
    )


def _labelled(model: EncoderModel, examples: GlueExamples, batch_texts: int) -> TaskTexts:
    task, labels = examples.task, model.settings.labels
    score: _NumberScore | _LabelScore
    if task.is_regression:
        if len(labels) != 1:
            raise ConfigError(
                f"{task.name} asks for a number, and the model gives labels",
                seen=", ".join(labels),
                remedy="Name a model with one label.",
            )
        score = _NumberScore(task, examples.labels)
    else:
        numbers = np.array(label_numbers(labels, task))
        score = _LabelScore(task, examples.labels, numbers)
    if len(task.sentences) == 2:
        read = read_pairs(model, [(row[0], row[1]) for row in examples.texts], truncate="end")
    else:
        read = read_texts(model, [row[0] for row in examples.texts], truncate="end")
    return _task_texts(examples, read, score, batch_texts)


def _task_texts(
    examples: GlueExamples,
    read: ReadTexts,
    score: "_NumberScore | _LabelScore | _CosineScore",
    batch_texts: int,
) -> TaskTexts:
    task = examples.task
    of_set = f", {examples.set_name}" if examples.set_name else ""
    left_out = f", {examples.num_left_out:,} rows left out" if examples.num_left_out else ""
    cut = f", {len(read.counts.cut):,} texts cut" if read.counts.cut else ""
    return TaskTexts(
        name=f"{task.name}{of_set}",
        texts=tuple(read.texts),
        score=score,
        protocol=f"{task.name}{of_set}: {len(examples.texts):,} rows of {examples.path.name}"
        f"{left_out}{cut}, {read.counts.total_tokens:,} tokens",
        batch_texts=batch_texts,
    )


@dataclass(frozen=True)
class _LabelScore:
    task: GlueTask
    expected_N: npt.NDArray[np.int64]
    numbers_E: npt.NDArray[np.int64]

    def __call__(self, outputs_NE: Outputs) -> Mapping[str, float]:
        return self.task.scores(self.numbers_E[outputs_NE.argmax(1)], self.expected_N)


@dataclass(frozen=True)
class _NumberScore:
    task: GlueTask
    expected_N: npt.NDArray[np.float64]

    def __call__(self, outputs_NE: Outputs) -> Mapping[str, float]:
        return self.task.scores(outputs_NE[:, 0].astype(np.float64), self.expected_N)


@dataclass(frozen=True)
class _CosineScore:
    """The first half of the outputs are the first texts of the pairs, the other half the second."""

    task: GlueTask
    expected_N: npt.NDArray[np.float64]

    def __call__(self, outputs_NE: Outputs) -> Mapping[str, float]:
        first_NE, second_NE = np.split(outputs_NE, 2)
        return self.task.scores(cosines(first_NE, second_NE), self.expected_N)
