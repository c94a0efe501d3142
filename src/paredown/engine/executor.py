"""Executor: the one thing the engine asks of whatever runs the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from paredown.engine.sampling.sampler import RowSampler
from paredown.kernels.native_sampler import SamplingState
from paredown.spec.model import ModelSpec


@dataclass(slots=True)
class SequenceSlice:
    """Consecutive tokens of one sequence that a step computes.

    `token_ids[j]` stands at position `start + j`. `pages` are the pages of the sequence in order,
    each of PAGE_SIZE positions, less the `num_released_pages` behind those with attention sinks
    that no token sees any more. They must cover `start + len(token_ids)` positions, and every
    earlier position must have been computed into them before. `num_logits` asks for the logits of
    the last `num_logits` tokens of the slice.
    """

    token_ids: list[int]
    start: int
    pages: Sequence[int]
    num_logits: int
    num_released_pages: int = 0


class Executor(Protocol):
    """Runs batched steps over paged keys and values. Not thread-safe: one caller at a time."""

    @property
    def spec(self) -> ModelSpec: ...

    @property
    def num_pages(self) -> int: ...

    def copy_pages(self, pairs: list[tuple[int, int]]) -> None:
        """Copies the keys and values of all layers, from page to page, pair after pair."""
        ...

    @property
    def sampler(self) -> RowSampler:
        """Draws from the logits of a step, before the next one begins."""
        ...

    def step(self, slices: list[SequenceSlice]) -> npt.NDArray[np.float32]:
        """Computes all slices in one pass; returns logits [sum of num_logits, vocab_size], in the
        order of the slices. A row's bits depend on its own sequence alone, never on the batch. A
        slice is not kept: in the next step the same object may hold other tokens."""
        ...

    def step_again(
        self, slices: list[SequenceSlice], token_ids: list[int]
    ) -> npt.NDArray[np.float32]:
        """As `step(moved_on(slices, token_ids))`, of the slices of the last step, each of one token
        and its row. What they say of tokens need not be true any more: others may have been given
        here before. Pages may have been added."""
        ...


def moved_on(slices: list[SequenceSlice], token_ids: list[int]) -> list[SequenceSlice]:
    """The same slices, each with the token after its last."""
    for part, token_id in zip(slices, token_ids, strict=True):
        part.start += len(part.token_ids)
        part.token_ids = [token_id]
    return slices


class DraftingExecutor(Executor, Protocol):
    """An executor of a draft model."""

    def write_drafts(
        self, slices: list[SequenceSlice], states: list[SamplingState], num_draft_tokens: list[int]
    ) -> list[list[int]]:
        """Computes all slices, and goes on with slice i for `num_draft_tokens[i]` tokens, of which
        all but the last are computed, too: its pages must have room for them. A token is drawn as
        `states[i]` draws it; where that allows none the draft ends. The states, of different
        requests, stay as they were. `num_logits` of a slice says nothing here."""
        ...
