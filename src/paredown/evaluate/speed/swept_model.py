"""A random model of a sweep, and its step times in each round."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from paredown.cost.fit_steps import MeasuredStep
from paredown.cost.model_formats import ModelFormats
from paredown.cost.step_cost import StepLoad, decode_load, prefill_load
from paredown.evaluate.quality.quartile import lower_quartile
from paredown.evaluate.speed.random_model import random_model
from paredown.executors.protocol import LoadedExecutor, SequenceSlice
from paredown.spec.kv import PAGE_SIZE, KVSpec
from paredown.spec.model import ModelSpec

# The most repeats of a step in a row, and the seconds after which it is not repeated.
_NUM_REPEATS = 16
_ROW_S = 0.03
# The first repeats find another step's data in the caches.
_NUM_WARMING = 6


@dataclass(frozen=True)
class SweptLoad:
    """A load of `num_tokens` tokens from position `start` on, in each of `num_sequences`."""

    num_sequences: int
    start: int
    num_tokens: int

    @property
    def _pages_each(self) -> int:
        return -(-(self.start + self.num_tokens) // PAGE_SIZE)

    @property
    def num_pages(self) -> int:
        return self.num_sequences * self._pages_each

    def slices(self) -> list[SequenceSlice]:
        """Returns the load as slices for the executor, with one row of logits each."""
        each = self._pages_each
        return [
            SequenceSlice(
                token_ids=[i % 1000 for i in range(self.num_tokens)],
                start=self.start,
                pages=list(range(number * each, (number + 1) * each)),
                num_logits=1,
            )
            for number in range(self.num_sequences)
        ]

    def step_load(self) -> StepLoad:
        if self.num_tokens == 1:
            return decode_load(self.num_sequences, self.start + 1)
        assert self.num_sequences == 1
        return prefill_load(self.num_tokens, self.start)


@dataclass
class SweptModel:
    """An open model of `spec` with random weights. Its first round is a warm-up. A short step is
    repeated in a row, as in decoding, so that the caches hold its own data."""

    spec: ModelSpec
    formats: ModelFormats
    loads: Sequence[SweptLoad]
    num_threads: int
    _executor: LoadedExecutor = field(init=False)
    _seconds: dict[SweptLoad, list[float]] = field(init=False)
    _is_warm: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        kv_dtype = self.formats.kv_dtype
        kv = KVSpec(num_pages=max(load.num_pages for load in self.loads), dtype=kv_dtype)
        self._executor = random_model(self.spec, self.formats.linear, kv, self.num_threads)
        self._seconds = {load: [] for load in self.loads}

    def run_round(self) -> None:
        """Runs all loads in turn."""
        for load, found in self._seconds.items():
            row = self._row(load.slices())
            if self._is_warm:
                found += row[_NUM_WARMING:] or row[-1:]
        self._is_warm = True

    def measured(self) -> dict[SweptLoad, MeasuredStep]:
        return {
            load: MeasuredStep(
                spec=self.spec,
                formats=self.formats,
                load=load.step_load(),
                seconds=lower_quartile(seconds),
            )
            for load, seconds in self._seconds.items()
        }

    def _row(self, slices: list[SequenceSlice]) -> list[float]:
        """Returns the seconds of a step that is repeated."""
        found = list[float]()
        while len(found) < _NUM_REPEATS and sum(found) < _ROW_S:
            started = time.perf_counter()
            self._executor.step(slices)
            found.append(time.perf_counter() - started)
        return found
