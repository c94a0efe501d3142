"""Students of half the classifier's layers, and what their teacher's features add to its labels.

All begin with the teacher's layers 0, 2, 4, learn from the same rows in the same steps, and are
judged as the teacher is: `hard-label` from the labels of the file, `soft-label` from the teacher's,
`tinybert` from these and its attention and hidden states (arXiv 1909.10351).
"""

import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.glue.train import train_config, training_data, training_examples
from benchmarks.kept_models import KeptModels
from paredown.distill.distill import DistillConfig, Pair, distill
from paredown.distill.students.make_student import make_student
from paredown.distill.students.student_choice import StudentChoice
from paredown.engine.build_encoder import build_encoder
from paredown.evaluate.tasks.glue import find_task
from paredown.evaluate.tasks.glue_file import read_glue_sets
from paredown.evaluate.tasks.measure_glue import measure_glue
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint
from paredown.progress import OnProgress

STUDENT = "every-2"
METHODS = ("hard-label", "tinybert", "soft-label")


def measure_students(
    teacher: Path, name: str, training_file: Path, models: KeptModels, on_progress: OnProgress
) -> dict[str, dict[str, Any]]:
    """Returns the scores of the teacher and of each student, kept in `models`."""
    found: dict[str, dict[str, Any]] = {"teacher": {"scores": scores(teacher, name)}}
    for method in METHODS:

        def make(output: Path, method: str = method) -> dict[str, Any]:
            return teach(teacher, method, name, training_file, output, on_progress)

        found[method] = models.figures(f"{name}-{STUDENT}-{method}", make)
    return found


def teach(
    teacher: Path,
    method: str,
    name: str,
    training_file: Path,
    output: Path,
    on_progress: OnProgress,
) -> dict[str, Any]:
    """Writes the student `output`; returns its scores and what its training took."""
    original = Checkpoint.open(teacher)
    started_cpu = time.process_time()
    with TemporaryDirectory(prefix="paredown-") as folder:
        begun = Path(folder) / "student"
        make_student(original, StudentChoice.parse(STUDENT), begun)
        student = Checkpoint.open(begun)
        data = training_data(student, training_examples(name, training_file))
        config = DistillConfig(method=method, student=STUDENT, train=train_config(name, data))
        pair = Pair(student=student, teacher=original)
        made = distill(pair, output, config, data, on_progress=on_progress)
    return {
        "scores": scores(output, name),
        "num_steps": len(made.training.records),
        "processor_s": time.process_time() - started_cpu,
    }


def scores(model: Path, name: str) -> Mapping[str, float]:
    """Returns the task's metrics of the model as it is served."""
    (examples, *_) = read_glue_sets(find_task(name), None)
    encoder = build_encoder(Checkpoint.open(model), RunOptions())
    return measure_glue(encoder, examples).model.scores
