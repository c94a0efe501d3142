"""What a step reads and computes, token by token."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.loads import CountedExecutor
from fakes.toy_executor import ToyExecutor
from fakes.virtual_clock import VirtualClock
from paredown.evaluate.load.meter import Meter
from paredown.executors.protocol import SequenceSlice
from paredown.spec.kv import PAGE_SIZE

CHUNKS = st.lists(st.integers(1, 20), min_size=1, max_size=4)


def steps_of(sequences: list[list[int]]) -> list[list[SequenceSlice]]:
    """Step by step a chunk of each sequence, with pages of its own, a row of logits for each
    chunk's last token."""
    steps = []
    for index in range(max(map(len, sequences))):
        slices = []
        for number, chunks in enumerate(sequences):
            if index < len(chunks):
                start = sum(chunks[:index])
                pages = list(range(8 * number, 8 * number + 8))
                used = pages[: -(-(start + chunks[index]) // PAGE_SIZE)]
                slices.append(SequenceSlice([7] * chunks[index], start, used, 1))
        steps.append(slices)
    return steps


@given(st.lists(CHUNKS, min_size=1, max_size=3))
@settings(max_examples=25, deadline=None)
def test_a_step_reads_all_weights_and_each_sequence_up_to_its_end(
    sequences: list[list[int]],
) -> None:
    executor = CountedExecutor(num_pages=24)
    meter = Meter(executor)
    spec = executor.spec
    num_bytes, num_flops = 0, 0
    per_token = 2 * spec.num_active_linear_parameters()
    for slices in steps_of(sequences):
        meter.executor.step(slices)
        num_bytes += 1000
        for one in slices:
            for position in range(one.start, one.start + len(one.token_ids)):
                # One layer with one head of 8: scores and values of each pair.
                num_flops += per_token + 4 * 8 * (position + 1)
            num_bytes += 10 * (position + 1)
            num_flops += 2 * spec.vocab_size * spec.hidden_size
    assert meter.num_steps == max(map(len, sequences))
    assert meter.num_bytes == num_bytes
    assert meter.num_flops == num_flops


def test_it_times_steps_alone_and_answers_as_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock(monkeypatch)
    meter = Meter(CountedExecutor(num_pages=4, delay_s=0.25))
    slices = [SequenceSlice([5, 6, 7], 0, [0], 2)]
    logits = meter.executor.step(slices)
    clock.sleep(100)
    meter.executor.step(slices)
    assert meter.seconds == 0.5
    assert np.array_equal(logits, ToyExecutor(num_pages=4).step(slices))
    meter.reset()
    assert (meter.seconds, meter.num_steps, meter.num_bytes, meter.num_flops) == (0, 0, 0, 0)
