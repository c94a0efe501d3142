"""WrappedExecutor: another executor, whose steps pass through somebody's hands."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from paredown.engine.executor import Executor, SequenceSlice, moved_on
from paredown.engine.sampling.sampler import RowSampler
from paredown.spec.context import Context
from paredown.spec.model import ModelSpec


class WrappedExecutor:
    """Implements Executor as `executor` does, but for `step`: that is the caller's, to time, count
    or change what the executor's own does, which it calls."""

    def __init__(
        self,
        executor: Executor,
        step: Callable[[list[SequenceSlice]], npt.NDArray[np.float32]],
    ) -> None:
        self._executor = executor
        self._step = step

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
    def sampler(self) -> RowSampler:
        return self._executor.sampler

    def copy_pages(self, pairs: list[tuple[int, int]]) -> None:
        self._executor.copy_pages(pairs)

    def step(self, slices: list[SequenceSlice]) -> npt.NDArray[np.float32]:
        return self._step(slices)

    def step_again(
        self, slices: list[SequenceSlice], token_ids: list[int]
    ) -> npt.NDArray[np.float32]:
        return self._step(moved_on(slices, token_ids))
