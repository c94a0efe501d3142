"""The memory of losses of features is predicted: never below what they take, and not far above."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

# A process of its own, as in test_memory.py.
RUN = """
import json, sys
import numpy as np
from pathlib import Path
from paredown.distill.data.training_data import TrainingData
from paredown.distill.distill import DistillConfig, Pair, distill
from paredown.distill.rows import Rows
from paredown.distill.students.make_student import make_student
from paredown.distill.students.student_choice import StudentChoice
from paredown.distill.train_config import TrainConfig
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model

teacher, folder = Checkpoint.open(resolve_model(None)), Path(sys.argv[1])
make_student(teacher, StudentChoice.parse("every-2"), folder / "student")
pair = Pair(student=Checkpoint.open(folder / "student"), teacher=teacher)
tokens_NT = np.random.default_rng(0).integers(0, teacher.spec.vocab_size, (8, 512))
train = TrainConfig(num_tokens=4096, batch_tokens=2048, num_threads=2)
data = TrainingData(rows=Rows.from_windows(tokens_NT), held_out=None, source="numbers")
made = distill(pair, folder / "out", DistillConfig(train=train, method=sys.argv[2]), data)
lines = Path("/proc/self/status").read_text().splitlines()
peak = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
print(json.dumps([made.memory.total, peak]))
"""


@pytest.mark.parametrize("method", ["tinybert", "gradients"])
def test_the_peak_is_at_most_the_predicted_one_and_near_it(method: str, tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path), method],
        capture_output=True,
        text=True,
        check=True,
    )
    predicted, peak = json.loads(found.stdout)
    # So small a training may not reach the peak of a long one.
    assert peak <= predicted <= 1.4 * peak, (predicted, peak)
