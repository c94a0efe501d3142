"""PostingRuns: sorts postings by token in bounded memory (external merge sort).

Postings that come in the order of documents wait until there are _RUN_BYTES of them, and are
written as a sorted run. The file of runs has no name, so that a kill leaves nothing of it.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from paredown.kernels.coil_search import Numbers
from paredown.retrieve.postings import Postings
from paredown.retrieve.vectors import Ints
from paredown.units import MEBI

_RUN_BYTES = 32 * MEBI
# Postings that are merged in memory.
_MERGED_AT_ONCE = 1 << 15


@dataclass(frozen=True, kw_only=True)
class _Run:
    """A run in the file: vectors, tokens and documents, one after the other."""

    offset: int
    num_postings: int


class PostingRuns:
    """The file lies in `folder` and is closed with `stack`. Disk is needed for all vectors as
    float32 until then, beyond one run."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  `stack` closes it
        self._file: IO[bytes] = stack.enter_context(file)
        self._runs: list[_Run] = []
        self._waiting: list[Postings] = []
        self._waiting_bytes = 0
        self._num_dims = 0

    def add(self, postings: Postings) -> None:
        """Takes postings of documents beyond those before them. Raises OSError."""
        self._num_dims = postings.vectors.shape[1]
        self._waiting.append(postings)
        self._waiting_bytes += postings.num_bytes
        if self._waiting_bytes >= _RUN_BYTES:
            self._write_run(self._take_waiting())

    def sorted_runs(self) -> "SortedRuns":
        """Returns everything that was added. Raises OSError."""
        self._file.flush()
        runs = list(self._mapped())
        if self._waiting:
            runs.append(self._take_waiting())
        return SortedRuns(runs)

    def _take_waiting(self) -> Postings:
        postings = Postings.together(self._waiting).by_token()
        self._waiting.clear()
        self._waiting_bytes = 0
        return postings

    def _write_run(self, postings: Postings) -> None:
        self._runs.append(_Run(offset=self._file.tell(), num_postings=len(postings)))
        for array in (postings.vectors, postings.tokens, postings.documents):
            self._file.write(array.reshape(-1).view(np.uint8).data)

    def _mapped(self) -> Iterator[Postings]:
        """Yields the runs of the file, which is mapped once: each map takes a descriptor."""
        if not self._runs:
            return
        numbers = np.memmap(self._file, np.uint32, "r")
        for run in self._runs:
            begin, number = run.offset // numbers.itemsize, run.num_postings
            tokens = begin + number * self._num_dims
            documents = tokens + number
            vectors = numbers[begin:tokens].view(np.float32)
            yield Postings(
                tokens=numbers[tokens:documents],
                documents=numbers[documents : documents + number],
                vectors=vectors.reshape(number, self._num_dims),
            )


class SortedRuns:
    """Runs whose documents rise from one to the next. `tokens_L` are those that occur, in ascending
    order; `offsets` say where the list of each begins among all postings, and the end [L + 1]."""

    def __init__(self, runs: list[Postings]) -> None:
        self._runs = runs
        parts = [np.unique(run.tokens, return_counts=True) for run in runs]
        tokens = np.concatenate([one for one, _ in parts]) if parts else np.empty(0, np.uint32)
        counts = np.concatenate([one for _, one in parts]) if parts else np.empty(0, np.int64)
        self.tokens_L: Numbers
        self.tokens_L, place_of = np.unique(tokens, return_inverse=True)
        self.offsets: Ints = np.zeros(len(self.tokens_L) + 1, np.int64)
        np.add.at(self.offsets, place_of + 1, counts)
        np.cumsum(self.offsets, out=self.offsets)

    def merged(self) -> Iterator[Postings]:
        """Yields all postings, in ascending order of tokens and of documents."""
        begin = 0
        while begin < len(self.tokens_L):
            most = self.offsets[begin] + _MERGED_AT_ONCE
            end = max(begin + 1, int(np.searchsorted(self.offsets, most, side="right")) - 1)
            parts = self._parts(begin, end)
            if end - begin == 1:
                yield from parts  # of one token, which may have any number
            else:
                yield Postings.together(parts).by_token()
            begin = end

    def _parts(self, begin: int, end: int) -> list[Postings]:
        """Returns what each run has of tokens [begin, end), where it has any."""
        first, last = self.tokens_L[begin], self.tokens_L[end - 1]
        found = []
        for run in self._runs:
            part = run.part(
                int(np.searchsorted(run.tokens, first, side="left")),
                int(np.searchsorted(run.tokens, last, side="right")),
            )
            if len(part):
                found.append(part)
        return found
