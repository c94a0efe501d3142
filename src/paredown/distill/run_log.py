"""RunLog: a CSV file with a line for each step of a training."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from paredown.errors import OutputError
from paredown.models.files.whole_file import whole_file


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One step. `loss` is the mean over its `num_targets` targets, before the step moved the
    weights; `gradient_norm` is the norm before clipping."""

    step: int
    num_tokens: int
    num_targets: int
    loss: float
    gradient_norm: float
    learning_rate: float
    elapsed_s: float


class RunLog:
    """Adds each step to the file at once; None keeps no file. A resumed run begins with the lines
    of the steps it does not repeat. Raises OutputError where the file cannot be written."""

    def __init__(self, path: Path | None, records: Sequence[StepRecord]) -> None:
        self._path = path
        if path is None:
            return
        names = [field.name for field in fields(StepRecord)]
        with whole_file(path) as file:
            file.write(_line(names).encode())
            for record in records:
                file.write(_line(list(asdict(record).values())).encode())

    def add(self, record: StepRecord) -> None:
        if self._path is None:
            return
        try:
            with self._path.open("a", encoding="utf-8", newline="") as file:
                file.write(_line(list(asdict(record).values())))
        except OSError as error:
            raise OutputError(
                f"the log of steps {self._path} could not be written",
                seen=error.strerror or error,
                remedy="Free some space; the same command goes on from the last saved step.",
            ) from error


def _line(values: Sequence[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()
