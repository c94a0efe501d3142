"""The memory of a training is predicted: never below what it takes, and not far above."""

import json
import subprocess
import sys

import pytest

from drivers.tiny_training import config
from paredown.distill.layout import Layout, layouts
from paredown.distill.memory import TrainingSize, choose_layout
from paredown.errors import CapacityError
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.device import free_bytes
from paredown.models.resolve import resolve_model

# A process of its own, since what others left behind is taken into account but used again.
RUN = """
import json, sys
import numpy as np
from dataclasses import replace
from pathlib import Path
from paredown.distill.recover import RecoverConfig, recover
from paredown.distill.rows import Rows
from paredown.distill.train_config import TrainConfig
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model

model = Checkpoint.open(resolve_model(None))
tokens_NT = np.random.default_rng(0).integers(0, model.spec.vocab_size, (8, 512))
train = TrainConfig(num_tokens=8192, num_threads=2)
settings = RecoverConfig(train=train)
result = recover(model, model, Path(sys.argv[1]), settings, Rows.from_windows(tokens_NT))
lines = Path("/proc/self/status").read_text().splitlines()
peak = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
print(json.dumps([result.memory.total, peak]))
"""

FREE_BYTES = f"paredown.distill.memory.{free_bytes.__name__}"


def test_the_peak_is_at_most_the_predicted_one_and_near_it(tmp_path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=True,
    )
    predicted, peak = json.loads(found.stdout)
    assert peak <= predicted <= 1.3 * peak


@pytest.fixture(scope="module")
def size() -> TrainingSize:
    spec = Checkpoint.open(resolve_model(None)).spec
    return TrainingSize(
        spec=spec,
        num_trained=spec.num_parameters(),
        num_held=0,
        trains_tables=True,
        row_tokens=64,
        step_rows=config(1, batch_tokens=2048).step_rows(64),
        arithmetic="fp32",
        teacher=spec,
    )


def test_layouts_take_ever_less(size: TrainingSize, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list(layouts(size.step_rows, size.row_tokens, 4))
    growths = [size.predict(layout).growth for layout in found]
    assert growths == sorted(growths, reverse=True)
    assert len(set(growths)) == len(found) == 4
    for layout, growth in zip(found, growths, strict=True):
        monkeypatch.setattr(FREE_BYTES, lambda device, growth=growth: growth)
        assert choose_layout(size, 4)[0] == layout
    monkeypatch.setattr(FREE_BYTES, lambda device: growths[-1] - 1)
    with pytest.raises(CapacityError, match="does not fit"):
        choose_layout(size, 4)


def test_a_gpu_computes_large_parts_one_at_a_time() -> None:
    first = next(layouts(8, 512, 4, "cuda"))
    assert first == Layout(part_rows=8, num_workers=1, threads_each=4, recomputes=False)


def test_a_step_keeps_all_threads_busy() -> None:
    first = next(layouts(8, 512, 4))
    assert first == Layout(part_rows=2, num_workers=4, threads_each=1, recomputes=False)
    assert next(layouts(2, 512, 16)) == Layout(
        part_rows=1, num_workers=2, threads_each=8, recomputes=False
    )
    assert next(layouts(1, 8192, 2)).num_workers == 1
