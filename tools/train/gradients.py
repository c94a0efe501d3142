"""Gradients of a batch, micro-batch by micro-batch, on worker threads that run one core each.

Threads that take the next micro-batch when they are free lose no time to each other when another
program takes one of the cores; one micro-batch on all cores would wait at every product.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tools.train.data import with_start
from tools.train.loss import mean_cross_entropy
from tools.train.model import Decoder

MICRO_TOKENS = 2048


class GradientWorkers:
    """Computes the mean loss of a batch and leaves its gradient in `grad` of every parameter."""

    def __init__(self, model: Decoder, threads: int) -> None:
        self.model = model
        self.parameters = list(model.parameters())
        self.forward: Callable[[Tensor], Tensor] = torch.compile(model, dynamic=False)
        self.threads = threads
        self.pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
        self.compiled_shapes: set[tuple[int, ...]] = set()

    def micro(self, rows: npt.NDArray[np.int64]) -> tuple[float, tuple[Tensor, ...]]:
        """Loss and gradients of target rows (count, length)."""
        # Compiled code is specific to torch's thread count, which every thread keeps for itself.
        torch.set_num_threads(1)
        inputs = torch.from_numpy(with_start(rows))
        targets = torch.from_numpy(np.ascontiguousarray(rows)).flatten()
        hidden = self.forward(inputs).flatten(0, 1)
        loss = mean_cross_entropy(hidden, self.model.embedding, targets)
        return loss.item(), torch.autograd.grad(loss, self.parameters)

    def batch(self, rows: npt.NDArray[np.int64]) -> float:
        """Mean loss of target rows (count, length) in nats per token."""
        parts = np.array_split(rows, max(1, rows.size // MICRO_TOKENS))
        done = []
        if parts[0].shape not in self.compiled_shapes:
            # Compilation is not safe on two threads at once.
            done.append(self.pool.submit(self.micro, parts.pop(0)).result())
            self.compiled_shapes.add(parts[0].shape)
        total = 0.0
        sums: list[Tensor] | None = None
        for loss, gradients in [*done, *self.pool.map(self.micro, parts)]:
            total += loss
            if sums is None:
                sums = list(gradients)
            else:
                torch._foreach_add_(sums, list(gradients))
        assert sums is not None, "a batch has at least one micro-batch"
        count = len(parts) + len(done)
        for parameter, gradient in zip(self.parameters, sums, strict=True):
            parameter.grad = gradient / count
        return total / count
