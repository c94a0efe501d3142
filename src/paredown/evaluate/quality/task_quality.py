"""TaskQuality: how well the vectors of an encoder do a task, and how far they are from the
original's."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError
from paredown.evaluate.quality.vector_agreement import cosines
from paredown.executors.encoder_protocol import TokenText

# Texts that are computed together unless told otherwise.
BATCH_TEXTS = 16

# A text's outputs a row: labels' numbers, or a vector.
Outputs = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class TaskTexts:
    """The texts of a task as a model reads them. `score` returns the task's metrics by name, the
    first of which is its score, from the outputs of all texts in order. `protocol` says in reports
    what they are. At most `batch_texts` are computed together, which matters where values of
    several texts share a scale."""

    name: str
    texts: tuple[TokenText, ...]
    score: Callable[[Outputs], Mapping[str, float]]
    protocol: str
    batch_texts: int = BATCH_TEXTS


@dataclass(frozen=True, kw_only=True)
class TaskQuality:
    """`scores` are the task's metrics. `cosine_mean` and `cosine_least` compare each text's outputs
    with the original's."""

    scores: Mapping[str, float]
    cosine_mean: float
    cosine_least: float

    @property
    def score(self) -> float:
        """The task's score, at most 1."""
        return next(iter(self.scores.values()))

    @property
    def metric(self) -> str:
        return next(iter(self.scores))

    @property
    def loss(self) -> float:
        """How much the score lacks."""
        return 1 - self.score

    def require_numbers(self, name: str) -> None:
        """Raises CheckpointError when the outputs of the model called `name` were NaN."""
        if math.isnan(self.score) or math.isnan(self.cosine_mean):
            raise CheckpointError(
                f"the outputs of {name} are not numbers, or all alike",
                seen=f"{self.metric} {self.score}, cosine {self.cosine_mean}",
                remedy="Its weights are damaged, or a grid of one scale is too coarse for them.",
            )


def task_quality(task: TaskTexts, found_NE: Outputs, expected_NE: Outputs) -> TaskQuality:
    """Returns the quality of outputs beside those of the original."""
    cosines_N = cosines(found_NE, expected_NE)
    return TaskQuality(
        scores=task.score(found_NE),
        cosine_mean=float(cosines_N.mean()),
        cosine_least=float(cosines_N.min()),
    )
