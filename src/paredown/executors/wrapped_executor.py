"""WrappedExecutor: another executor, with a replaced `step`."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from paredown.executors.protocol import Executor, SequenceSlice, moved_on
from paredown.executors.sampler import Sampler
from paredown.spec.context import Context
from paredown.spec.model import ModelSpec


class WrappedExecutor:
    """Implements Executor like `executor`, except for `step`. The caller's function replaces it,
    to time, count or change what the executor's own `step`, which it calls, does."""

    def __init__(
        self,
        executor: Executor,
        step: Callable[[list[SequenceSlice]], npt.NDArray[np.float32]],
    ) -> None:
        self._executor = executor
        self._step = step
        self._slices = list[SequenceSlice]()

    @property
    def spec(self) -> ModelSpec:
        return self._executor.spec

    @property
    def context(self) -> Context:
        return self._executor.context

    @property
    def num_pages(self) -> int:
        return self._executor.num_pages

    @property
    def sampler(self) -> Sampler:
        return self._executor.sampler

    def copy_pages(self, pairs: list[tuple[int, int]]) -> None:
        self._executor.copy_pages(pairs)

    def step(self, slices: list[SequenceSlice]) -> npt.NDArray[np.float32]:
        self._slices = slices
        return self._step(slices)

    def step_again(self, token_ids: list[int]) -> npt.NDArray[np.float32]:
        return self._step(moved_on(self._slices, token_ids))
