"""Executor: the one thing the engine asks of whatever runs the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from paredown.executors.sampler import Sampler, SamplingState
from paredown.kernels.thread_plan import ThreadPlan
from paredown.spec.context import Context
from paredown.spec.kv import KVSpec
from paredown.spec.model import ModelSpec


@dataclass(slots=True)
class SequenceSlice:
    """Consecutive tokens of one sequence that a step computes.

    `token_ids[j]` stands at position `start + j`. `pages` are the pages of the sequence in order,
    each of PAGE_SIZE positions, less the `num_released_pages` behind those with attention sinks
    that no token sees any more. They must cover `start + len(token_ids)` positions, and every
    earlier position must have been computed into them before. `num_logits` asks for the logits of
    the last `num_logits` tokens of the slice.

    `num_text_tokens` is how long the text is as far as it is known, 0 where it ends with the slice:
    a prompt's length for its first chunk. Models that turn longer texts by other frequencies
    (`ModelSpec.rotary_switch`) need it; there all slices of a sequence, since its first token was
    computed, must lie on one side of the switch.
    """

    token_ids: list[int]
    start: int
    pages: Sequence[int]
    num_logits: int
    num_released_pages: int = 0
    num_text_tokens: int = 0

    @property
    def text_length(self) -> int:
        """The length of the text as far as it is known, this slice's tokens among it."""
        return max(self.num_text_tokens, self.start + len(self.token_ids))


class Executor(Protocol):
    """Runs batched steps over paged keys and values. Not thread-safe: one caller at a time."""

    @property
    def spec(self) -> ModelSpec: ...

    @property
    def context(self) -> Context:
        """The model, and what a token may see of a text in this run."""
        ...

    @property
    def num_pages(self) -> int: ...

    @property
    def sampler(self) -> Sampler:
        """Draws from the logits of a step, before the next one begins."""
        ...

    def copy_pages(self, pairs: list[tuple[int, int]]) -> None:
        """Copies the keys and values of all layers, from page to page, pair after pair."""
        ...

    def step(self, slices: list[SequenceSlice]) -> npt.NDArray[np.float32]:
        """Computes all slices in one pass; returns logits [sum of num_logits, vocab_size], in the
        order of the slices. A slice is not kept: in the next step the same object may hold other
        tokens."""
        ...

    def step_again(self, token_ids: list[int]) -> npt.NDArray[np.float32]:
        """Repeats the last step with one new token for each of its sequences.

        Every slice of that step had one token and one row of logits. Token i stands at the position
        after the last token of slice i, and the sequence has the same pages, except that the list
        given as `pages` may have grown. The result is that of a `step` with such slices.
        """
        ...


class DraftingExecutor(Executor, Protocol):
    """An executor that can run a draft model."""

    def write_drafts(
        self, slices: list[SequenceSlice], states: list[SamplingState], num_draft_tokens: list[int]
    ) -> list[list[int]]:
        """Computes all slices, and goes on with slice i for `num_draft_tokens[i]` tokens, of which
        all but the last are computed, too: its pages must have room for them. A token is drawn as
        `states[i]` draws it; where that allows none the draft ends. The states, of different
        requests, stay as they were. `num_logits` of a slice is ignored."""
        ...


class LoadedExecutor(DraftingExecutor, Protocol):
    """An executor with the weights of a checkpoint, as `load_executor` returns it."""

    @property
    def kv(self) -> KVSpec:
        """Number and format of its pages."""
        ...

    @property
    def threads(self) -> ThreadPlan: ...

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that one decode step reads."""
        ...

    @property
    def kv_token_bytes(self) -> int:
        """Bytes of keys and values of one token over all layers."""
        ...

    @property
    def arithmetic(self) -> dict[str, str]:
        """What the last bits of logits depend on besides weights and tokens. Two executors with
        equal entries compute equal bits."""
        ...

    @property
    def known_content(self) -> str | None:
        """The digest of the checkpoint's files (models/fingerprints.py) where loading had to know
        it."""
        ...

    def sharing_weights(self, kv: KVSpec, *, keeps_sinks: bool = True) -> "LoadedExecutor":
        """Another executor on the same weights, with pages of its own, and attention sinks where
        this one has them and they are kept."""
        ...

    def wait_for_cache(self) -> None:
        """Returns when nothing of loading goes on in the background: the packed weights are on
        disk, or it is clear that they cannot be."""
        ...


def moved_on(slices: list[SequenceSlice], token_ids: list[int]) -> list[SequenceSlice]:
    """The same slices, moved to the one token after their last: what `step_again` computes."""
    for part, token_id in zip(slices, token_ids, strict=True):
        part.start += len(part.token_ids)
        part.token_ids = [token_id]
    return slices
