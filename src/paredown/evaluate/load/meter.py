"""Meter: an executor whose steps are timed, and what they read and compute is added up."""

import time

import numpy as np
import numpy.typing as npt

from paredown.engine.executor import SequenceSlice
from paredown.engine.sampling.sampler import RowSampler
from paredown.evaluate.speed import MeasuredExecutor, slice_flops
from paredown.spec.model import ModelSpec


class Meter:
    """Implements Executor. A step reads all weights once, and of each sequence all keys and values
    up to its last token once."""

    def __init__(self, executor: MeasuredExecutor) -> None:
        self._executor = executor
        self.seconds = 0.0
        self.num_steps = 0
        self.num_bytes = 0
        self.num_flops = 0.0

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
        start_s = time.perf_counter()
        logits = self._executor.step(slices)
        self.seconds += time.perf_counter() - start_s
        self.num_steps += 1
        self.num_bytes += self._executor.weight_bytes
        for one in slices:
            num_tokens = len(one.token_ids)
            self.num_bytes += (one.start + num_tokens) * self._executor.kv_token_bytes
            self.num_flops += slice_flops(
                self.spec, start=one.start, num_tokens=num_tokens, num_logits=one.num_logits
            )
        return logits

    def reset(self) -> None:
        self.seconds, self.num_steps, self.num_bytes, self.num_flops = 0.0, 0, 0, 0.0
