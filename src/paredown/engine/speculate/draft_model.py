"""Speculative decoding with a draft model (Leviathan et al. 2023, arXiv 2211.17192): a small model
of the same vocabulary writes the guess, a token at a time, for all requests together.

The draft model is a second Executor with pages of its own. What it has computed of a request and
came true stays; the rest is computed over.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from paredown.engine.executor import Executor, SequenceSlice
from paredown.engine.memory.pages import PagePool
from paredown.engine.request import Request
from paredown.engine.sampling.sampler import FAILURES
from paredown.engine.speculate.proposer import Ask
from paredown.kernels.native_sampler import RowStatus, SamplingState
from paredown.spec.kv import PAGE_SIZE

# A prompt is computed in pieces, a piece a call, so that nobody waits for the whole of it.
MAX_PREFILL_TOKENS = 512


@dataclass(slots=True)
class _Sequence:
    """The first `num_certain` tokens of a request are computed, then the guesses `guessed`."""

    pages: list[int] = field(default_factory=list)
    num_certain: int = 0
    guessed: list[int] = field(default_factory=list)

    def keep_what_came_true(self, token_ids: list[int]) -> None:
        """The last token is computed again in any case: its logits are wanted."""
        for token_id in self.guessed:
            if self.num_certain >= len(token_ids) or token_ids[self.num_certain] != token_id:
                break
            self.num_certain += 1
        self.num_certain = min(self.num_certain, len(token_ids) - 1)
        self.guessed = []


@dataclass(slots=True)
class _Writing:
    """A draft under way: `uncomputed` tokens lead to its next token."""

    request: Request
    state: SamplingState
    sequence: _Sequence
    max_tokens: int
    uncomputed: list[int]
    token_ids: list[int] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return len(self.token_ids) == self.max_tokens

    def take_back(self) -> None:
        """Leaves the state of the sampling as it was."""
        for _ in self.token_ids:
            self.state.pop()


class DraftModelProposer:
    """Guesses are drawn with the request's own parameters and noise, so that they tend to be what
    the target draws.

    `vocab_size` is the target's: checkpoints of one tokenizer may pad it to different sizes. A
    request that is too long for the draft model's context or pages, or holds a token that it does
    not have, gets no draft.
    """

    def __init__(self, executor: Executor, *, vocab_size: int) -> None:
        self.executor = executor
        self._vocab_size = vocab_size
        self._pool = PagePool(executor.num_pages)
        self._sequences: dict[int, _Sequence] = {}
        # Ids of the requests that the call under way is about.
        self._asked: set[int] = set()

    def propose(self, asks: Sequence[Ask]) -> list[list[int]]:
        self._asked = {ask.request.id for ask in asks}
        writings = [self._begin(ask) for ask in asks]
        self._catch_up([one for one in writings if one is not None])
        try:
            while active := [one for one in writings if one is not None and self._goes_on(one)]:
                self._write(active)
        finally:
            for writing in writings:
                if writing is not None:
                    writing.take_back()
        return [[] if one is None else one.token_ids for one in writings]

    def forget(self, request: Request) -> None:
        sequence = self._sequences.pop(request.id, None)
        if sequence is not None:
            self._pool.release(sequence.pages)

    def check_integrity(self) -> None:
        """Asserts that every page has one owner."""
        self._pool.check_integrity()
        owned = [page for one in self._sequences.values() for page in one.pages]
        assert len(set(owned)) == len(owned) == self._pool.num_pages - self._pool.num_free

    def _begin(self, ask: Ask) -> _Writing | None:
        request, num_tokens = ask.request, len(ask.request.token_ids)
        max_tokens = min(ask.max_tokens, self.executor.spec.max_positions - num_tokens + 1)
        if max_tokens < 1:
            return None
        sequence = self._sequences.get(request.id)
        if sequence is None:
            sequence = self._sequences[request.id] = _Sequence()
        # The last guess is not computed.
        if not self._grow(sequence, num_tokens + max_tokens - 1):
            return None
        sequence.keep_what_came_true(request.token_ids)
        uncomputed = request.token_ids[sequence.num_certain :]
        if max(uncomputed) >= self.executor.spec.vocab_size:
            return None
        assert ask.state is not None
        return _Writing(request, ask.state, sequence, max_tokens, uncomputed)

    def _goes_on(self, writing: _Writing) -> bool:
        return len(writing.uncomputed) == 1 and not writing.is_done

    def _catch_up(self, writings: list[_Writing]) -> None:
        """Computes what is certain but for the last token, as much as one call may."""
        slices, budget = [], MAX_PREFILL_TOKENS
        for writing in writings:
            num_tokens = min(len(writing.uncomputed) - 1, budget)
            if num_tokens:
                slices.append(self._slice(writing, num_tokens, num_logits=0))
                writing.sequence.num_certain += num_tokens
                del writing.uncomputed[:num_tokens]
                budget -= num_tokens
        if slices:
            self.executor.step(slices)

    def _write(self, writings: list[_Writing]) -> None:
        """One more token of each draft, pushed onto its state for the time of writing."""
        logits = self._fit(
            self.executor.step([self._slice(one, 1, num_logits=1) for one in writings])
        )
        sampled = self.executor.sampler.sample(logits, [one.state for one in writings])
        for writing, token_id, _, failure in zip(writings, *sampled, strict=True):
            sequence = writing.sequence
            if writing.token_ids:
                sequence.guessed.append(writing.token_ids[-1])
            else:
                sequence.num_certain += 1
            if failure == FAILURES[RowStatus.NOT_FINITE]:
                raise ArithmeticError(failure)
            if failure is not None:  # the request's settings allow nothing here
                writing.max_tokens = len(writing.token_ids)
                continue
            writing.token_ids.append(token_id)
            writing.uncomputed = [token_id]

    def _fit(self, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """As wide as the target's vocabulary."""
        missing = self._vocab_size - logits.shape[1]
        if missing > 0:
            return np.pad(logits, ((0, 0), (0, missing)), constant_values=-np.inf)
        return np.ascontiguousarray(logits[:, : self._vocab_size]) if missing else logits

    def _slice(self, writing: _Writing, num_tokens: int, *, num_logits: int) -> SequenceSlice:
        sequence = writing.sequence
        return SequenceSlice(
            token_ids=writing.uncomputed[:num_tokens],
            start=sequence.num_certain + len(sequence.guessed),
            pages=sequence.pages,
            num_logits=num_logits,
        )

    def _grow(self, sequence: _Sequence, num_tokens: int) -> bool:
        """Pages for `num_tokens`. Requests that are not asked about now give up theirs if need be:
        they wait, and would be computed anew."""
        missing = -(-num_tokens // PAGE_SIZE) - len(sequence.pages)
        if missing <= 0:
            return True
        if missing > self._pool.num_free:
            for request_id in [one for one in self._sequences if one not in self._asked]:
                self._pool.release(self._sequences.pop(request_id).pages)
        pages = self._pool.allocate(missing)
        if pages is None:
            return False
        sequence.pages += pages
        return True
