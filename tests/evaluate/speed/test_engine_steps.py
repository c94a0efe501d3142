"""What the engine takes beside its executor, in time that passes where it is told to."""

import time

import pytest

from fakes.toy_executor import ToyExecutor, ToyTokenizer, toy_spec
from fakes.virtual_clock import VirtualClock
from paredown.cost.model_formats import ModelFormats
from paredown.cost.step_cost import decode_load, prompts_load
from paredown.engine.engine import Engine
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.evaluate.speed import engine_steps
from paredown.evaluate.speed.engine_steps import (
    BATCHES,
    StepTimer,
    measure_engine_steps,
    num_engine_pages,
)
from paredown.spec.kv import PAGE_SIZE

SPEC = toy_spec(max_positions=1024)


class PerToken(ToyExecutor):
    """10 ms for a step, 1 ms for a token."""

    def step(self, slices):
        time.sleep(0.01 + 0.001 * sum(len(one.token_ids) for one in slices))
        return super().step(slices)


class SlowTokenizer(ToyTokenizer):
    """4 ms for a piece of text, which the engine makes of each token."""

    def decode(self, token_ids):
        time.sleep(0.004)
        return super().decode(token_ids)


@pytest.fixture
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    VirtualClock(monkeypatch)


@pytest.mark.usefixtures("_clock")
def test_the_executor_and_the_rest_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step of the engine takes 7 ms of its own here, and taking a request in takes 2 ms."""
    step, submit = Engine.step, Engine.submit

    def slow_step(self):
        time.sleep(0.007)
        return step(self)

    def slow_submit(self, *given):
        time.sleep(0.002)
        return submit(self, *given)

    monkeypatch.setattr(Engine, "step", slow_step)
    monkeypatch.setattr(Engine, "submit", slow_submit)
    executor = PerToken(num_pages=num_engine_pages(), spec=SPEC)
    found = measure_engine_steps(executor, ToyTokenizer(), ModelFormats(), 2)
    assert len(found) == 2 * len(BATCHES)
    for (number, num_tokens), first, later in zip(BATCHES, found[::2], found[1::2], strict=True):
        assert first.executor.load == prompts_load(number, num_tokens)
        assert first.executor.seconds == pytest.approx(0.01 + 0.001 * number * num_tokens)
        assert first.engine_s == pytest.approx(0.007 + 0.002 * number)
        assert later.executor.load == decode_load(number, num_tokens + 3)
        assert later.executor.seconds == pytest.approx(0.01 + 0.001 * number)
        assert later.engine_s == pytest.approx(0.007)
        assert first.executor.spec == later.executor.spec == SPEC


@pytest.mark.usefixtures("_clock")
def test_rounds_that_warm_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each batch the first three, here with steps that take a minute."""
    monkeypatch.setattr(engine_steps, "BATCHES", ((2, 8),))
    step, num_rounds = Engine.step, []

    def cold_step(self):
        num_rounds.append(self)
        time.sleep(60.0 if len(set(map(id, num_rounds))) <= 3 else 0.5)
        return step(self)

    monkeypatch.setattr(Engine, "step", cold_step)
    executor = PerToken(num_pages=num_engine_pages(), spec=SPEC)
    found = measure_engine_steps(executor, ToyTokenizer(), ModelFormats(), 3)
    assert [one.engine_s for one in found] == pytest.approx([0.5, 0.5])


def test_pages_hold_every_batch_to_its_end() -> None:
    for number, num_tokens in BATCHES:
        needed = number * -(-(num_tokens + 7) // PAGE_SIZE)
        assert needed <= num_engine_pages()
    assert num_engine_pages() == max(number * -(-(n + 7) // PAGE_SIZE) for number, n in BATCHES)


@pytest.mark.usefixtures("_clock")
def test_a_timer_adds_up_steps_alone() -> None:
    timer = StepTimer(PerToken(num_pages=64, spec=SPEC))
    engine = Engine(timer.executor, SlowTokenizer(), ScheduleConfig())
    engine.submit([1, 2, 3], SamplingParams(max_tokens=4))
    engine.step()
    assert timer.seconds == pytest.approx(0.013)
    time.sleep(5)
    engine.step()
    assert timer.seconds == pytest.approx(0.013 + 0.011)
