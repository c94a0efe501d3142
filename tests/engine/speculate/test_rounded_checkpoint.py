"""A draft model in floats is loaded as the int8 that `paredown compress` would make of it."""

import numpy as np
import pytest

from paredown.compress.compress import compress
from paredown.engine.speculate.rounded_checkpoint import RoundedCheckpoint
from paredown.executors.load import load_executor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.kernels.isa import ENVIRONMENT_VARIABLE
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model


@pytest.fixture(scope="module")
def stored():
    return Checkpoint.open(resolve_model("draft"))


def load(checkpoint):
    return load_executor(checkpoint, RunOptions(num_pages=4, threads=ThreadPlan.resolve(1)))


def logits(executor):
    return executor.step([SequenceSlice([1, 500, 7], 0, [0], 3)])


def test_floats_are_rounded_as_compress_rounds_them(stored, tmp_path, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "generic")  # which packs bf16 as it is
    compress(stored, tmp_path / "int8", "int8-head-int8")
    compressed, rounded = (
        load(Checkpoint.open(tmp_path / "int8")),
        load(RoundedCheckpoint.of(stored)),
    )
    assert np.array_equal(logits(compressed), logits(rounded))
    assert rounded.weight_bytes == compressed.weight_bytes < 0.55 * load(stored).weight_bytes


def test_codes_stay_what_they_are(stored, tmp_path):
    compress(stored, tmp_path / "int4", "int4-g32-head-int4-g32")
    checkpoint = Checkpoint.open(tmp_path / "int4")
    rounded = RoundedCheckpoint.of(checkpoint)
    module = checkpoint.linear_name("q", 0)
    assert rounded.weight_specs()[module] == checkpoint.weight_specs()[module]
    assert np.array_equal(logits(load(checkpoint)), logits(load(rounded)))
