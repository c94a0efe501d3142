"""Times steps of the whole engine, with scheduling, sampling and decoding to text.

The engine's own share, outside its executor, is what counts here. It is Python code, whose time
depends on what the executor leaves in the processor's caches: beside a model that fills them, the
same steps take several times as long.
"""

import time
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from paredown.cost.fit_steps import MeasuredEngineStep, MeasuredStep
from paredown.cost.model_formats import ModelFormats
from paredown.cost.step_cost import StepLoad, decode_load, prompts_load
from paredown.engine.active_request import EngineTokenizer
from paredown.engine.engine import Engine
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.evaluate.quality.quartile import lower_quartile
from paredown.executors.protocol import Executor, SequenceSlice
from paredown.executors.wrapped_executor import WrappedExecutor
from paredown.spec.kv import PAGE_SIZE
from paredown.spec.model import ModelSpec

# Numbers of simultaneous requests, with the tokens of each prompt.
BATCHES = ((1, 16), (1, 128), (1, 480), (8, 32), (32, 4))
_NUM_DECODE_STEPS = 6
# Python's first runs are slow.
_NUM_WARMING = 3


class StepTimer:
    """Sums the seconds of the steps of `timed` that run through the wrapper `executor`."""

    def __init__(self, timed: Executor) -> None:
        self._timed = timed
        self.executor = WrappedExecutor(timed, self._step)
        self.seconds = 0.0

    def _step(self, slices: list[SequenceSlice]) -> npt.NDArray[np.float32]:
        started = time.perf_counter()
        logits = self._timed.step(slices)
        self.seconds += time.perf_counter() - started
        return logits


@dataclass(frozen=True)
class _Seconds:
    """Seconds of one kind of step in each round: the executor's, and the engine's besides."""

    executor: list[float] = field(default_factory=list)
    engine: list[float] = field(default_factory=list)


def num_engine_pages() -> int:
    """Returns the number of pages that `measure_engine_steps` needs."""
    return max(
        number * -(-(num_tokens + _NUM_DECODE_STEPS + 1) // PAGE_SIZE)
        for number, num_tokens in BATCHES
    )


def measure_engine_steps(
    executor: Executor, tokenizer: EngineTokenizer, formats: ModelFormats, num_rounds: int
) -> list[MeasuredEngineStep]:
    """Measures for each batch the prefill step, including submission, and greedy decode steps.
    Returns lower quartiles."""
    timer, found = StepTimer(executor), []
    for number, num_tokens in BATCHES:
        first, later = _Seconds(), _Seconds()
        for one in range(_NUM_WARMING + num_rounds):
            kept = (first, later) if one >= _NUM_WARMING else (_Seconds(), _Seconds())
            _run_batch(timer, tokenizer, (number, num_tokens), kept)
        context = num_tokens + _NUM_DECODE_STEPS // 2
        loads = (prompts_load(number, num_tokens), decode_load(number, context))
        found += [
            _measured(executor.spec, formats, load, seconds)
            for load, seconds in zip(loads, (first, later), strict=True)
        ]
    return found


def _run_batch(
    timer: StepTimer,
    tokenizer: EngineTokenizer,
    batch: tuple[int, int],
    seconds: tuple[_Seconds, _Seconds],
) -> None:
    engine = Engine(timer.executor, tokenizer, ScheduleConfig(prefix_cache=False))
    params = SamplingParams(max_tokens=_NUM_DECODE_STEPS + 1, temperature=0.0, ignore_eos=True)
    number, num_tokens = batch
    vocab_size = timer.executor.spec.vocab_size
    prompts = [[(7919 * i + j) % vocab_size for i in range(num_tokens)] for j in range(number)]
    for kept in (seconds[0], *[seconds[1]] * _NUM_DECODE_STEPS):
        timer.seconds = 0.0
        started = time.perf_counter()
        while prompts:
            engine.submit(prompts.pop(), params)
        engine.step()
        all_s = time.perf_counter() - started
        kept.executor.append(timer.seconds)
        kept.engine.append(all_s - timer.seconds)


def _measured(
    spec: ModelSpec, formats: ModelFormats, load: StepLoad, seconds: _Seconds
) -> MeasuredEngineStep:
    step = MeasuredStep(
        spec=spec, formats=formats, load=load, seconds=lower_quartile(seconds.executor)
    )
    return MeasuredEngineStep(executor=step, engine_s=lower_quartile(seconds.engine))
