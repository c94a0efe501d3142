"""Speculative decoding with a draft model (Leviathan et al. 2023, arXiv 2211.17192): a small model
of the same vocabulary drafts token by token, for all requests together.

The draft model is a second Executor with its own pages. The tokens that it computed and that were
accepted stay; the rest is computed again. A call of `propose` is one call of the executor: missing
tokens and the first draft token form one step, and nothing happens between two draft tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from paredown.engine.memory.pages import PagePool
from paredown.engine.request import Request
from paredown.engine.speculate.proposer import Ask
from paredown.executors.protocol import DraftingExecutor, SequenceSlice
from paredown.executors.sampler import SamplingState
from paredown.spec.kv import PAGE_SIZE

# Prompts are computed in pieces of this size, one per call, so that no request waits for a whole
# prompt.
MAX_PREFILL_TOKENS = 512


@dataclass(slots=True)
class _Sequence:
    """A request in the draft model: its first `num_certain` tokens are computed, then the tokens in
    `drafted`. With `is_long` they are computed as those of a long text (`ModelSpec.rotary_switch`).
    """

    pages: list[int] = field(default_factory=list)
    num_certain: int = 0
    is_long: bool = False
    drafted: list[int] = field(default_factory=list)

    def keep_what_came_true(self, token_ids: list[int]) -> None:
        """Keeps the computed tokens that agree with `token_ids`. The last token is always computed
        again, because its logits are needed."""
        for token_id in self.drafted:
            if self.num_certain >= len(token_ids) or token_ids[self.num_certain] != token_id:
                break
            self.num_certain += 1
        self.num_certain = min(self.num_certain, len(token_ids) - 1)
        self.drafted = []


class DraftModelProposer:
    """Drafts are drawn with the request's own parameters and noise, so that they tend to equal the
    target's tokens.

    A request gets no draft if it is too long for the draft model's context or pages, or holds a
    token outside its vocabulary. (Checkpoints of one tokenizer may pad the vocabulary to different
    sizes.)
    """

    def __init__(self, executor: DraftingExecutor) -> None:
        self.executor = executor
        self._pool = PagePool(executor.num_pages)
        self._sequences: dict[int, _Sequence] = {}
        # The requests of the current call, by id.
        self._asked: set[int] = set()

    def propose(self, asks: Sequence[Ask]) -> list[list[int]]:
        self._asked = {ask.request.id for ask in asks}
        drafts: list[list[int]] = [[] for _ in asks]
        places, slices = list[int](), list[SequenceSlice]()
        states, num_draft_tokens = list[SamplingState](), list[int]()
        budget = MAX_PREFILL_TOKENS
        for place, ask in enumerate(asks):
            sequence = self._ready(ask)
            if sequence is None:
                continue
            token_ids, start = ask.request.token_ids, sequence.num_certain
            num_missing = len(token_ids) - start - 1
            # After a partial prompt there is nothing to propose yet.
            is_whole = num_missing <= budget
            end = len(token_ids) if is_whole else start + budget
            budget -= min(num_missing, budget)
            if end == start:
                continue
            assert ask.state is not None
            places.append(place)
            part = SequenceSlice(token_ids[start:end], start, sequence.pages, int(is_whole))
            part.num_text_tokens = len(token_ids)
            slices.append(part)
            states.append(ask.state)
            num_draft_tokens.append(self._room(ask) if is_whole else 0)
        if not slices:
            return drafts
        written = self.executor.write_drafts(slices, states, num_draft_tokens)
        for place, one, draft in zip(places, slices, written, strict=True):
            sequence = self._sequences[asks[place].request.id]
            sequence.num_certain = one.start + len(one.token_ids)
            # The last draft token is not computed.
            sequence.drafted = draft[:-1]
            drafts[place] = draft
        return drafts

    def forget(self, request: Request) -> None:
        sequence = self._sequences.pop(request.id, None)
        if sequence is not None:
            self._pool.release(sequence.pages)

    def check_integrity(self) -> None:
        """Asserts that every page has one owner."""
        self._pool.check_integrity()
        owned = [page for one in self._sequences.values() for page in one.pages]
        assert len(set(owned)) == len(owned) == self._pool.num_pages - self._pool.num_free

    def _room(self, ask: Ask) -> int:
        """Returns how many tokens the context leaves for a draft, without crossing the length at
        which all tokens are rotated differently."""
        num_tokens, spec = len(ask.request.token_ids), self.executor.spec
        end = spec.max_positions
        if spec.rotary_switch is not None and num_tokens <= spec.rotary_switch:
            end = min(end, spec.rotary_switch)
        return min(ask.max_tokens, end - num_tokens + 1)

    def _turns_as_long(self, request: Request) -> bool:
        switch = self.executor.spec.rotary_switch
        return switch is not None and len(request.token_ids) > switch

    def _ready(self, ask: Ask) -> _Sequence | None:
        """Returns the request's sequence with pages for its draft, or None if there can be none."""
        request, num_draft_tokens = ask.request, self._room(ask)
        if num_draft_tokens < 1:
            return None
        sequence = self._sequences.get(request.id)
        if sequence is None:
            sequence = self._sequences[request.id] = _Sequence()
        if sequence.is_long != self._turns_as_long(request):
            # It is computed anew in its existing pages.
            sequence.num_certain, sequence.drafted = 0, []
            sequence.is_long = not sequence.is_long
        if not self._grow(sequence, len(request.token_ids) + num_draft_tokens - 1):
            return None
        sequence.keep_what_came_true(request.token_ids)
        if max(request.token_ids[sequence.num_certain :]) >= self.executor.spec.vocab_size:
            return None
        return sequence

    def _grow(self, sequence: _Sequence, num_tokens: int) -> bool:
        """Allocates pages for `num_tokens`. If needed, requests outside the current call lose
        theirs: they are waiting and can be computed anew."""
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
