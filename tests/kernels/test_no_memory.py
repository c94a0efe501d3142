"""What the core does where the system gives it no more memory, or no more threads."""

import subprocess
import sys

import pytest

from paredown.errors import CapacityError
from paredown.executors.load import load_executor
from paredown.executors.run_options import RunOptions
from paredown.kernels import _core
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model

# Run apart: a limit of the address space holds for all that a process does.
_LIMITED = """
import contextlib, resource, sys
import numpy as np
from paredown.kernels import _core
from paredown.kernels.linear_source import LinearSource


@contextlib.contextmanager
def at_most(more_bytes):
    pages = int(open("/proc/self/statm").read().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    size = pages * resource.getpagesize() + more_bytes
    resource.setrlimit(resource.RLIMIT_AS, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def linear(num_threads):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (16, 64), np.uint8)
    scales = np.ones((16, 1), np.float32)
    weight = LinearSource(
        kind="int8",
        activations="int8_row",
        group_size=64,
        arrays={"values": codes, "scales": scales},
    )
    return _core.Linear("", num_threads, weight.fields())
"""


def run_limited(body: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED + body], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_layer_without_room_for_its_rows_runs_once_there_is_some() -> None:
    """What was made of the room before must not be taken for all of it."""
    run_limited("""
num_tokens = 200_000
x = np.random.default_rng(1).normal(size=(num_tokens, 64)).astype(np.float32)
y, expected = np.empty((num_tokens, 16), np.float32), np.empty((num_tokens, 16), np.float32)
linear(1).run(x, expected)
limited = linear(1)
limited.run(x[:3], y[:3])
for more_bytes in (1 << 20, 80 << 20, 120 << 20):
    with at_most(more_bytes):
        try:
            limited.run(x, y)
        except MemoryError:
            pass
        else:
            sys.exit(f"{more_bytes} bytes were enough")
    limited.run(x[: num_tokens // 2], y[: num_tokens // 2])
    assert np.array_equal(y[: num_tokens // 2], expected[: num_tokens // 2])
limited.run(x, y)
assert np.array_equal(y, expected)
""")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_model_without_room_for_a_step_takes_the_next_one() -> None:
    run_limited("""
from paredown.executors.load import load_executor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model

executor = load_executor(
    Checkpoint.open(resolve_model(None)),
    RunOptions(num_pages=512, threads=ThreadPlan.resolve(1), cache=None),
)


def step(num_sequences):
    return executor.step([
        SequenceSlice(
            token_ids=list(range(100, 116)), start=0, pages=[sequence], num_logits=1
        )
        for sequence in range(num_sequences)
    ])


expected = step(1)
for more_bytes in (1 << 20, 10 << 20, 20 << 20, 30 << 20):
    with at_most(more_bytes):
        try:
            step(512)
        except MemoryError:
            pass
        else:
            sys.exit(f"{more_bytes} bytes were enough")
    assert np.array_equal(step(256), np.tile(expected, (256, 1)))
assert np.array_equal(step(512), np.tile(expected, (512, 1)))
""")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_threads_that_do_not_start_are_told_and_leave_nothing_behind() -> None:
    """Each asks for megabytes of stack."""
    run_limited("""
import threading
with at_most(40 << 20):
    try:
        linear(200)
    except _core.ThreadError as error:
        assert "starts no more than" in str(error) and "of 200 threads" in str(error), error
    else:
        sys.exit("200 threads were started")
x, y = np.ones((1, 64), np.float32), np.empty((1, 16), np.float32)
linear(2).run(x, y)
""")


def test_a_model_whose_threads_do_not_start_is_refused_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise _core.ThreadError("the system starts no more than 3 of 8 threads")

    monkeypatch.setattr(_core, "Model", refuse)
    with pytest.raises(CapacityError, match=r"3 of 8 threads.*--threads"):
        load_executor(Checkpoint.open(resolve_model(None)), RunOptions(num_pages=8, cache=None))
