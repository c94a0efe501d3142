"""Layout: how a training step is shared out over threads, and what it keeps for its gradients."""

from collections.abc import Iterator
from dataclasses import dataclass

from paredown.spec.device import Device

# A part of a step, in tokens: large enough for efficient products of matrices.
_PART_TOKENS = {"cpu": 2048, "cuda": 16384}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """`num_workers` threads with `threads_each` compute parts of `part_rows` rows. With
    `recomputes` layers run twice instead of keeping their values (forward.py). The bits of a run
    depend on `part_rows` and `threads_each`."""

    part_rows: int
    num_workers: int
    threads_each: int
    recomputes: bool


def layouts(
    step_rows: int, num_tokens: int, num_threads: int, device: Device = "cpu"
) -> Iterator[Layout]:
    """Yields the layouts of steps of `step_rows` rows of `num_tokens` tokens: the fastest first,
    then those that take ever less memory. A GPU computes one part at a time."""
    most_workers = num_threads if device == "cpu" else 1
    part_rows = max(1, min(_PART_TOKENS[device] // num_tokens, -(-step_rows // most_workers)))
    workers = min(most_workers, -(-step_rows // part_rows))
    yield _layout(part_rows, workers, num_threads, recomputes=False)
    if workers > 1:
        yield _layout(part_rows, 1, num_threads, recomputes=False)
    yield _layout(part_rows, 1, num_threads, recomputes=True)
    if part_rows > 1:
        yield _layout(1, 1, num_threads, recomputes=True)


def _layout(part_rows: int, workers: int, num_threads: int, *, recomputes: bool) -> Layout:
    return Layout(
        part_rows=part_rows,
        num_workers=workers,
        threads_each=num_threads // workers,
        recomputes=recomputes,
    )
