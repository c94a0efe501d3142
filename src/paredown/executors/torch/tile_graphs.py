"""TileGraphs: runs the computation of a tile, or of a query page, as a CUDA graph.

These computations repeat with the same shapes, so their kernels are recorded once and then
launched together. Launching them one by one takes longer than running them.
"""

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

# Takes tensors, some of which may be None, and returns tensors.
Compute = Callable[..., tuple[Tensor, ...]]
Inputs = tuple[Tensor | None, ...]

# The thread that records must have the stream to itself.
_RECORDING = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    outputs: tuple[Tensor, ...]


class TileGraphs:
    """Not thread-safe, like the executor that owns it: graphs share the memory of their
    intermediate values."""

    def __init__(self) -> None:
        self._recorded: dict[Hashable, _Recorded] = {}
        self._pool = torch.cuda.graph_pool_handle()

    def run(self, key: Hashable, compute: Compute, inputs: Inputs) -> tuple[Tensor, ...]:
        """Returns the result of `compute` for these inputs. A key stands for one function and
        one shape of inputs. The function must not read anything else that changes, and must
        not wait."""
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
            # Runs once before recording, so that libraries load their kernels and allocate their
            # memory.
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
    """Returns one stream for the process, since libraries keep memory for each stream."""
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def run_plainly(_key: Hashable, compute: Compute, inputs: Inputs) -> tuple[Tensor, ...]:
    """Runs the function directly."""
    return compute(*inputs)
