"""Meter: times the steps of an executor and adds up the bytes they read and the FLOPs."""

import time

import numpy as np
import numpy.typing as npt

from paredown.evaluate.speed.speed import MeasuredExecutor, slice_flops
from paredown.executors.protocol import SequenceSlice
from paredown.executors.wrapped_executor import WrappedExecutor


class Meter:
    """Times the steps of `metered` that run through the wrapper `executor`. A step is counted as
    reading all weights once and, for each sequence, all keys and values up to its last token once.
    """

    def __init__(self, metered: MeasuredExecutor) -> None:
        self._metered = metered
        self.executor = WrappedExecutor(metered, self._step)
        self.seconds = 0.0
        self.num_steps = 0
        self.num_bytes = 0
        self.num_flops = 0.0

    def reset(self) -> None:
        self.seconds, self.num_steps, self.num_bytes, self.num_flops = 0.0, 0, 0, 0.0

    def _step(self, slices: list[SequenceSlice]) -> npt.NDArray[np.float32]:
        start_s = time.perf_counter()
        logits = self._metered.step(slices)
        self.seconds += time.perf_counter() - start_s
        self.num_steps += 1
        self.num_bytes += self._metered.weight_bytes
        spec = self._metered.spec
        for one in slices:
            num_tokens = len(one.token_ids)
            self.num_bytes += (one.start + num_tokens) * self._metered.kv_token_bytes
            self.num_flops += slice_flops(
                spec, start=one.start, num_tokens=num_tokens, num_logits=one.num_logits
            )
        return logits
