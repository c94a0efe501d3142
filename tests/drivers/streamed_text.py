"""Computes one text chunk by chunk, on no more pages than it needs."""

import numpy as np
import numpy.typing as npt

from paredown.executors.protocol import Executor, SequenceSlice
from paredown.spec.context import Context
from paredown.spec.kept_pages import KeptPages
from paredown.spec.kv import PAGE_SIZE

Logits = npt.NDArray[np.float32]


class Pages:
    """A small pool for one text. Pages that no later token sees are freed and overwritten."""

    def __init__(self, context: Context, num_pages: int) -> None:
        self.kept = KeptPages.of(context)
        self.free = list(np.random.default_rng(5).permutation(num_pages))
        self.held: list[int] = []
        self.num_released = 0

    def cover(self, num_tokens: int) -> None:
        while (len(self.held) + self.num_released) * PAGE_SIZE < num_tokens:
            self.held.append(self.free.pop(0))

    def release(self, num_computed: int) -> None:
        first = self.kept.num_sink_pages
        while self.num_released < self.kept.num_released(num_computed):
            self.free.append(self.held.pop(first))
            self.num_released += 1


def run_streamed(executor: Executor, token_ids: list[int], chunks: list[int]) -> Logits:
    """Returns the logits of every token, computed in these chunk sizes; the last size repeats."""
    pages, rows, done = Pages(executor.context, executor.num_pages), [], 0
    while done < len(token_ids):
        chunk = token_ids[done : done + chunks[0]]
        chunks = chunks[1:] or chunks
        pages.cover(done + len(chunk))
        part = SequenceSlice(
            token_ids=chunk,
            start=done,
            pages=list(pages.held),
            num_logits=len(chunk),
            num_released_pages=pages.num_released,
        )
        rows.append(executor.step([part]))
        done += len(chunk)
        pages.release(done)
    return np.concatenate(rows)
