"""Gradients of a batch, part by part, on threads that compute one part each.

Threads that each have a part of their own wait for each other less often than threads that share
every product.
The parts are added in their order, so the bits do not depend on how many threads there are.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

import torch
from torch import Tensor

from paredown.distill.batch import Batch

# Returns the sum of the losses of a part, with gradients.
PartLoss = Callable[[Batch], Tensor]
# The sum of the losses of a part, and its gradients.
_Part = tuple[float, tuple[Tensor, ...]]
_Result = TypeVar("_Result")


class GradientWorkers:
    """Use it as a context. `num_workers` threads compute one part at a time with `threads_each`;
    what the caller computes between batches has as many as all of them together."""

    def __init__(
        self, parameters: Sequence[Tensor], loss: PartLoss, num_workers: int, threads_each: int
    ) -> None:
        self._parameters = parameters
        self._loss = loss
        self._num_workers = num_workers
        self._threads_each = threads_each
        self._num_threads = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(
            num_workers, initializer=torch.set_num_threads, initargs=(threads_each,)
        )

    def __enter__(self) -> "GradientWorkers":
        torch.set_num_threads(self._num_workers * self._threads_each)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
        # A thread's number of threads is that of threads that start later, too.
        torch.set_num_threads(self._num_threads)

    def add_up(self, parts: Sequence[Batch]) -> tuple[float, list[Tensor]]:
        """Returns the sums of the losses and of the gradients of all parts."""
        total, sums = 0.0, list[Tensor]()
        for loss, gradients in self._in_order(parts, self._compute):
            total += loss
            if sums:
                torch._foreach_add_(sums, gradients)
            else:
                sums = list(gradients)
            del gradients  # so that the next ones do not exist beside them
        return total, sums

    def sum_losses(self, parts: Sequence[Batch]) -> float:
        """Returns the sum of the losses of all parts, without gradients."""
        return sum(self._in_order(parts, self._compute_loss))

    def _in_order(
        self, parts: Sequence[Batch], compute: Callable[[Batch], _Result]
    ) -> Iterator[_Result]:
        """Yields the parts' results in their order. No more of them exist at a time than there are
        threads."""
        waiting = deque[Future[_Result]]()
        for part in parts:
            if len(waiting) == self._num_workers:
                yield waiting.popleft().result()
            waiting.append(self._pool.submit(compute, part))
        while waiting:
            yield waiting.popleft().result()

    def _compute(self, part: Batch) -> _Part:
        loss = self._loss(part)
        gradients = torch.autograd.grad(
            loss, self._parameters, allow_unused=True, materialize_grads=True
        )
        return loss.item(), gradients

    def _compute_loss(self, part: Batch) -> float:
        with torch.no_grad():
            return self._loss(part).item()
