"""TileGraphs: what is computed of a tile, or of a page of queries, as CUDA graphs.

These have the same shapes again and again, so their kernels are recorded once and started together
from then on: to start them one by one takes longer than they run.
"""

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

# From tensors, some of which there may not be, to tensors.
Compute = Callable[..., tuple[Tensor, ...]]
Inputs = tuple[Tensor | None, ...]

# Who records has the stream to itself.
_RECORDING = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    outputs: tuple[Tensor, ...]


class TileGraphs:
    """Not thread-safe, as the executor that owns it: graphs share the memory of what they compute
    on the way."""

    def __init__(self) -> None:
        self._recorded: dict[Hashable, _Recorded] = {}
        self._pool = torch.cuda.graph_pool_handle()

    def run(self, key: Hashable, compute: Compute, inputs: Inputs) -> tuple[Tensor, ...]:
        """What `compute` gives for these inputs. A key stands for one function and one shape of
        inputs; it reads nothing else that changes, and waits for nothing."""
        found = [one for one in inputs if one is not None]
        if key not in self._recorded:
            self._recorded[key] = self._record(compute, inputs)
        recorded = self._recorded[key]
        torch._foreach_copy_(recorded.inputs, found)
        recorded.graph.replay()
        return tuple(one.clone() for one in recorded.outputs)

    def _record(self, compute: Compute, inputs: Inputs) -> _Recorded:
        held = tuple(None if one is None else one.clone() for one in inputs)
        graph, stream = torch.cuda.CUDAGraph(), _recording_stream()
        stream.wait_stream(torch.cuda.current_stream())
        with _RECORDING, torch.cuda.stream(stream):
            # Libraries load their kernels and take their memory before anything is recorded.
            compute(*held)
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                outputs = compute(*held)
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        return _Recorded(
            graph=graph, inputs=[one for one in held if one is not None], outputs=outputs
        )


@cache
def _recording_stream() -> torch.cuda.Stream:
    """One for the process: libraries keep memory of their own for each stream."""
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def run_plainly(_key: Hashable, compute: Compute, inputs: Inputs) -> tuple[Tensor, ...]:
    """Computes it here and now."""
    return compute(*inputs)
