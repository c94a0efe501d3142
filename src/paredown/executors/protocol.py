"""Executor: the interface through which the engine runs a model."""

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
    each with PAGE_SIZE positions. With attention sinks, the `num_released_pages` pages after the
    sinks' pages that no token sees any more are left out. The pages must cover `start +
    len(token_ids)` positions, and all earlier positions must have been computed into them.
    `num_logits` asks for the logits of the last `num_logits` tokens of the slice.

    `num_text_tokens` is the known length of the text, such as the prompt's length for its first
    chunk; 0 means that the text ends with the slice. Models that rotate longer texts by other
    frequencies (`ModelSpec.rotary_switch`) need it. In these, all slices of a sequence, from its
    first computed token on, must lie on one side of the switch.

    In an encoder-decoder the slice's tokens are the decoder's, and `cross_pages` are for the keys
    and values of the `num_cross_tokens` tokens that cross-attention reads. A step writes them
    before it computes anything else, if the slice has these tokens as `encoder_token_ids`; they
    must stay as they are from then on.
    """

    token_ids: list[int]
    start: int
    pages: Sequence[int]
    num_logits: int
    num_released_pages: int = 0
    num_text_tokens: int = 0
    encoder_token_ids: Sequence[int] = ()
    num_cross_tokens: int = 0
    cross_pages: Sequence[int] = ()

    @property
    def text_length(self) -> int:
        """The known length of the text, including this slice's tokens."""
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
        """The sampler, which draws from the logits of a step before the next step begins."""
        ...

    def copy_pages(self, pairs: list[tuple[int, int]]) -> None:
        """Copies the keys and values of all layers from page to page, one pair after another."""
        ...

    def step(self, slices: list[SequenceSlice]) -> npt.NDArray[np.float32]:
        """Computes all slices in one pass. Returns logits [sum of num_logits, vocab_size] in the
        order of the slices. Slices are not kept: the caller may change the object for the next
        step."""
        ...

    def step_again(self, token_ids: list[int]) -> npt.NDArray[np.float32]:
        """Repeats the last step with one new token for each of its sequences.

        Every slice of that step must have had one token and one row of logits. Token i stands at
        the position after slice i's last token. The sequence has the same pages, except that the
        list given as `pages` may have grown. The result is that of a `step` with such slices.
        """
        ...


class DraftingExecutor(Executor, Protocol):
    """An executor that can run a draft model."""

    def write_drafts(
        self, slices: list[SequenceSlice], states: list[SamplingState], num_draft_tokens: list[int]
    ) -> list[list[int]]:
        """Computes all slices, and continues slice i for `num_draft_tokens[i]` tokens.

        All of these but the last are computed too, and the slice's pages must have room for them.
        `states[i]` draws the tokens; where it allows none, the draft ends. The states belong to
        different requests and stay unchanged. `num_logits` of a slice is ignored.
        """
        ...


class LoadedExecutor(DraftingExecutor, Protocol):
    """An executor with the weights of a checkpoint, as `load_executor` returns it."""

    @property
    def kv(self) -> KVSpec:
        """The number and format of its pages."""
        ...

    @property
    def threads(self) -> ThreadPlan: ...

    @property
    def weight_bytes(self) -> int:
        """The bytes of weights that one decode step reads."""
        ...

    @property
    def kv_token_bytes(self) -> int:
        """The bytes of one token's keys and values over all layers."""
        ...

    @property
    def arithmetic(self) -> dict[str, str]:
        """Everything besides weights and tokens that the last bits of logits depend on. Two
        executors with equal entries compute equal bits."""
        ...

    @property
    def known_content(self) -> str | None:
        """The digest of the checkpoint's files (models/fingerprints.py), if loading had to compute
        it."""
        ...

    def sharing_weights(self, kv: KVSpec, *, keeps_sinks: bool = True) -> "LoadedExecutor":
        """Returns another executor on the same weights with its own pages. It has the attention
        sinks of this one, if any, unless `keeps_sinks` is false."""
        ...

    def wait_for_cache(self) -> None:
        """Waits until loading has nothing left in the background: the packed weights are on disk,
        or cannot be written."""
        ...


def moved_on(slices: list[SequenceSlice], token_ids: list[int]) -> list[SequenceSlice]:
    """Returns the slices moved to the one token after their last, as `step_again` computes them."""
    for part, token_id in zip(slices, token_ids, strict=True):
        part.start += len(part.token_ids)
        part.token_ids = [token_id]
        part.encoder_token_ids = ()
    return slices
