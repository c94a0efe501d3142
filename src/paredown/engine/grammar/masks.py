"""Masks: which tokens may come next, for all constrained requests of a step together.

They are computed without the interpreter lock, many of them on threads of their own. Bit t % 32 of
word t // 32 allows token t. R: rows, W: words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from llguidance import LLExecutor

from paredown.engine.grammar.constraint import Constraint

# Fewer masks than this take less time than it takes to wake a thread, which on a busy machine is
# far more than a mask.
_MIN_SHARED = 8
T = TypeVar("T")
Words = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Asked:
    """The tokens of an answer so far, and draft tokens that may follow them."""

    constraint: Constraint
    generated: Sequence[int]
    draft: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Mask:
    """`rows_RW` has a row for the next token, and one more for each token of `draft` that the
    grammar allows. `failure` says why there are none."""

    rows_RW: Words
    draft: Sequence[int] = ()
    failure: str | None = None


class MaskThreads:
    """Computes masks. Not thread-safe."""

    def __init__(self, num_threads: int) -> None:
        self._executor = LLExecutor(num_threads=num_threads)
        self._memory = np.zeros((0, 0), np.uint32)

    def compute(self, asked: Sequence[Asked]) -> list[Mask]:
        """Returns a mask for each of different constraints of one model. The rows are overwritten
        by the next call."""
        for one in asked:
            one.constraint.see(one.generated)
        firsts, num_rows = [], 0
        for one in asked:
            firsts.append(num_rows)
            num_rows += 1 + len(one.draft)
        rows_RW = self._rows(num_rows, -(-asked[0].constraint.num_tokens // 32))
        self._fill(asked, firsts, rows_RW)
        masks = []
        for one, first in zip(asked, firsts, strict=True):
            draft: Sequence[int] = one.draft
            if one.constraint.failure is not None:
                # A draft may have led it where the answer never goes, and answers share a lexer.
                one.constraint.begin_again(one.generated)
                self._fill([Asked(one.constraint, one.generated)], [first], rows_RW)
                draft = ()
            rows = rows_RW[first : first + 1 + len(draft)]
            masks.append(Mask(rows, draft, one.constraint.failure))
        return masks

    def _fill(self, asked: Sequence[Asked], firsts: Sequence[int], rows_RW: Words) -> None:
        num_rows, num_words = rows_RW.shape
        place, size = rows_RW.ctypes.data, num_words * rows_RW.itemsize
        plain, drafted = [], []
        for one, first in zip(asked, firsts, strict=True):
            if one.draft:
                drafted.append((one.constraint.matcher, first, list(one.draft)))
            else:
                plain.append((one.constraint.matcher, first))
        fill, fill_drafted = (
            self._executor.unsafe_compute_mask_ptr,
            self._executor.unsafe_compute_mask_ptr_with_draft_token,
        )
        for some in _shares(plain):
            fill(some, place, size, num_rows)
        for more in _shares(drafted):
            fill_drafted(more, place, size, num_rows)

    def _rows(self, num_rows: int, num_words: int) -> Words:
        if len(self._memory) < num_rows or self._memory.shape[1] != num_words:
            self._memory = np.zeros((num_rows, num_words), np.uint32)
        rows = self._memory[:num_rows]
        # A draft token that the grammar forbids leaves the rows behind it unwritten.
        rows[:] = 0
        return rows


def _shares(listed: list[T]) -> list[list[T]]:
    """Returns what goes to the executor together. It leaves one alone to the thread that asks."""
    if len(listed) < _MIN_SHARED:
        return [[one] for one in listed]
    return [listed]
