"""Loads of a sweep, and which of a step's times count."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.specs import gated
from fakes.virtual_clock import VirtualClock
from paredown.cost.model_formats import ModelFormats
from paredown.cost.step_cost import decode_load, prefill_load
from paredown.evaluate.quality.quartile import lower_quartile
from paredown.evaluate.speed import swept_model
from paredown.evaluate.speed.swept_model import SweptLoad, SweptModel
from paredown.executors.protocol import SequenceSlice
from paredown.spec.kv import PAGE_SIZE, KVSpec

SPEC = gated(max_positions=4096)
DECODE, CHUNK = SweptLoad(2, 30, 1), SweptLoad(1, 0, 40)


@given(st.integers(1, 20), st.integers(0, 300), st.integers(1, 100))
def test_a_load_has_pages_for_each_sequence_and_none_twice(
    num_sequences: int, start: int, num_tokens: int
) -> None:
    load = SweptLoad(num_sequences, start, num_tokens)
    slices = load.slices()
    used = [page for one in slices for page in one.pages]
    assert sorted(used) == list(range(load.num_pages))
    for one in slices:
        assert 0 <= len(one.pages) * PAGE_SIZE - (start + num_tokens) < PAGE_SIZE
        assert (one.start, len(one.token_ids), one.num_logits) == (start, num_tokens, 1)


@given(st.integers(1, 20), st.integers(0, 300), st.integers(1, 100))
def test_the_cost_model_is_told_what_the_executor_is_given(
    num_sequences: int, start: int, num_tokens: int
) -> None:
    load = SweptLoad(1 if num_tokens > 1 else num_sequences, start, num_tokens)
    told, slices = load.step_load(), load.slices()
    assert told.num_tokens == sum(len(one.token_ids) for one in slices)
    assert told.num_logits == sum(one.num_logits for one in slices)
    assert told.num_requests == len(slices)
    assert told.kv_tokens_read == sum(one.start + len(one.token_ids) for one in slices)
    pairs = [start + place + 1 for place in range(num_tokens)]
    assert told.attention_pairs == len(slices) * sum(pairs)
    kind = (
        decode_load(num_sequences, start + 1)
        if num_tokens == 1
        else prefill_load(num_tokens, start)
    )
    assert told == kind


class Timed:
    """Each step takes what comes next of `seconds`, and then no time."""

    def __init__(self, seconds: list[float]) -> None:
        self.seconds, self.called = seconds, list[int]()

    def step(self, slices: list[SequenceSlice]) -> np.ndarray:
        self.called.append(len(slices))
        time.sleep(self.seconds.pop(0) if self.seconds else 1e-9)
        return np.zeros((len(slices), 1), np.float32)


def swept(seconds: list[float], loads: list[SweptLoad], patch: pytest.MonkeyPatch) -> SweptModel:
    made: list[tuple[object, KVSpec, int]] = []

    def random_model(spec: object, weights: object, kv: KVSpec, num_threads: int) -> Timed:
        made.append((weights, kv, num_threads))
        return Timed(seconds)

    patch.setattr(swept_model, "random_model", random_model)
    VirtualClock(patch)
    model = SweptModel(SPEC, ModelFormats(kv_dtype="int8"), loads, 3)
    ((weights, kv, num_threads),) = made
    assert weights == ModelFormats().linear
    assert kv == KVSpec(num_pages=max(load.num_pages for load in loads), dtype="int8")
    assert num_threads == 3
    return model


def test_a_short_step_comes_in_a_row_whose_first_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """16 times in a round, 6 of them to warm the caches; the first round is for nothing."""
    times = [(1 + number) * 1e-6 for number in range(48)]
    model = swept([*times], [DECODE], monkeypatch)
    for _ in range(3):
        model.run_round()
    (step,) = model.measured().values()
    counted = [*times[16 + 6 : 32], *times[32 + 6 :]]
    assert step.seconds == pytest.approx(lower_quartile(counted))
    assert step.spec == SPEC
    assert step.load == DECODE.step_load()


def test_a_long_step_comes_once_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row ends after 30 ms; of a row too short to warm anything the last counts."""
    model = swept([9.0, 0.05, 0.02, 0.02, 0.07], [CHUNK], monkeypatch)
    for _ in range(4):
        model.run_round()
    assert model._executor.called == [1] * 5  # type: ignore[attr-defined]
    (step,) = model.measured().values()
    assert step.seconds == pytest.approx(0.02)


def test_loads_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    model = swept([1.0] * 6, [DECODE, CHUNK], monkeypatch)
    for _ in range(3):
        model.run_round()
    assert model._executor.called == [2, 1] * 3  # type: ignore[attr-defined]
    assert set(model.measured()) == {DECODE, CHUNK}
