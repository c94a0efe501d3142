"""BatchSource: where the trainer gets the batch of each step."""

from typing import Protocol

from paredown.distill.batch import Batch
from paredown.models.decoder.decoder import Decoder


class BatchSource(Protocol):
    """Makes one batch a step. A batch depends on the step's number and the student's weights alone,
    so a run that is resumed reads the same batches."""

    @property
    def num_rows(self) -> int:
        """Each step has a multiple of so many rows."""
        ...

    @property
    def step_tokens(self) -> int:
        """The most tokens of a step. The budget counts each step as so many."""
        ...

    def batch(self, step: int, student: Decoder) -> Batch:
        """Returns the batch of step number `step`, which counts from 0. The student is as the step
        finds it, and may be run to make the batch."""
        ...
