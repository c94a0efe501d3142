"""What the engine does around its executor, timed: scheduling, drawing tokens, making text."""

import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paredown.cost.calibrate import MeasuredOverhead
from paredown.engine.engine import Engine
from paredown.engine.executor import Executor, SequenceSlice
from paredown.engine.sampling.sampler import RowSampler
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.models.tokenizer import Tokenizer
from paredown.spec.model import ModelSpec

NUM_REQUESTS = (1, 8, 32)
_PROMPT_TOKENS = 4
_NUM_STEPS = 24


class TimedExecutor:
    """Another executor, with the seconds of its last step."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.last_step_s = 0.0

    @property
    def spec(self) -> ModelSpec:
        return self._executor.spec

    @property
    def num_pages(self) -> int:
        return self._executor.num_pages

    @property
    def sampler(self) -> RowSampler:
        return self._executor.sampler

    def copy_pages(self, pairs: list[tuple[int, int]]) -> None:
        self._executor.copy_pages(pairs)

    def step(self, slices: list[SequenceSlice]) -> npt.NDArray[np.float32]:
        started = time.perf_counter()
        logits = self._executor.step(slices)
        self.last_step_s = time.perf_counter() - started
        return logits


class _AnyToken:
    """A tokenizer for models of another vocabulary: ids beyond its own begin anew."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._num_tokens = len(tokenizer.vocabulary)

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return frozenset()

    def decode(self, token_ids: list[int], /) -> str:
        return self._tokenizer.decode([one % self._num_tokens for one in token_ids])


def measure_engine_overhead(executor: Executor, tokenizer: Tokenizer) -> list[MeasuredOverhead]:
    """Greedy decoding of several numbers of requests; the lower quartile of the steps."""
    timed = TimedExecutor(executor)
    found = []
    for num_requests in NUM_REQUESTS:
        engine = Engine(timed, _AnyToken(tokenizer))
        params = SamplingParams(max_tokens=_NUM_STEPS + 1, temperature=0.0, ignore_eos=True)
        for number in range(num_requests):
            prompt = [(number + i) % executor.spec.vocab_size for i in range(_PROMPT_TOKENS)]
            engine.submit(prompt, params)
        engine.step()
        seconds = []
        for _ in range(_NUM_STEPS):
            started = time.perf_counter()
            engine.step()
            seconds.append(time.perf_counter() - started - timed.last_step_s)
        found.append(
            MeasuredOverhead(
                num_requests=num_requests,
                num_logits=num_requests,
                vocab_size=executor.spec.vocab_size,
                seconds=lower_quartile(seconds),
            )
        )
    return found


def lower_quartile(values: Sequence[float]) -> float:
    """What is in the way only ever adds to a time."""
    return sorted(values)[(len(values) - 1) // 4]
