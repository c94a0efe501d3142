"""Speculator: asks the proposer before a step, and learns from what the step made of the draft
tokens.

The engine computes a request's draft tokens beside its last certain token, takes the next token at
each of those places in turn, and goes on while it is the draft token (Engine._take_tokens).
"""

import logging
import time
from collections.abc import Callable, Sequence

from paredown.engine.request import Request
from paredown.engine.speculate.adapt import Adapter
from paredown.engine.speculate.proposer import Ask, Proposer
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.engine.speculate.stats import SpeculationStats
from paredown.executors.sampler import SamplingState

LOGGER = logging.getLogger(__name__)


class Speculator:
    """Proposes draft tokens for the requests of one engine. A proposer that fails ends no answer:
    it is not asked again, and `stats.failure` says why."""

    def __init__(self, proposer: Proposer, config: SpeculationConfig) -> None:
        self.proposer = proposer
        self.config = config
        self.stats = SpeculationStats()
        self.adapter = Adapter()
        # Of the step under way.
        self._num_draft_tokens = self._num_accepted = 0
        self._drafting_s = 0.0
        # What it took to learn from the step before.
        self._learning_s = 0.0

    def propose(
        self,
        running: Sequence[Request],
        state_of: Callable[[Request], SamplingState],
        max_step_tokens: int,
        *,
        is_queued: bool = False,
    ) -> bool:
        """Gives drafts to those whose next step computes their last token; returns whether anyone
        has one now. `running` are all that the step will compute, of at most `max_step_tokens`
        tokens; `is_queued`: others wait for a place among them."""
        if self.stats.failure is not None:
            return False
        start_s = time.perf_counter() - self._learning_s
        self._learning_s = 0.0
        self._num_draft_tokens = self._num_accepted = 0
        self._drafting_s = 0.0
        wanted, limits, longest = 0, {}, self.config.num_draft_tokens
        for one in running:
            if one.draft_token_ids:  # it had no place in the last step
                one.draft_token_ids = ()
            num_tokens = len(one.token_ids)
            num_uncomputed = num_tokens - one.num_computed_tokens
            wanted += num_uncomputed
            # No draft token may stand where the request ends, whose last token is the model's, or
            # beyond.
            room = one.max_total_tokens - num_tokens - 1
            if num_uncomputed == 1 and room > 0:
                limits[one.id] = min(longest, room)
        wanted = min(wanted, max_step_tokens)
        if self.config.is_adaptive:
            limits = self.adapter.choose(limits, wanted, is_queued=is_queued)
        asks = [Ask(one, limits[one.id], state_of(one)) for one in running if limits.get(one.id)]
        if not asks:
            self._drafting_s = time.perf_counter() - start_s
            return False
        drafts = self._drafts(asks)
        self._drafting_s = time.perf_counter() - start_s
        self.stats.drafting_s += self._drafting_s
        if drafts is None:
            return False
        self.adapter.observe_drafting(max(ask.max_tokens for ask in asks), self._drafting_s)
        if self.config.is_adaptive:
            self._trim(asks, drafts, wanted, is_queued)
        for ask, draft in zip(asks, drafts, strict=True):
            ask.request.draft_token_ids = draft
        return any(drafts)

    def _drafts(self, asks: Sequence[Ask]) -> list[list[int]] | None:
        """The drafts of the proposer; None when it failed: drafting must not end an answer."""
        try:
            drafts = self.proposer.propose(asks)
        except Exception as error:
            self.stats.failure = f"{type(error).__name__}: {error}"
            LOGGER.exception("speculation has failed and is off")
            return None
        for ask, draft in zip(asks, drafts, strict=True):
            assert len(draft) <= ask.max_tokens
        return drafts

    def _trim(
        self, asks: Sequence[Ask], drafts: list[list[int]], num_tokens: int, is_queued: bool
    ) -> None:
        """Lookups find something for some requests only, and for those less than was asked for."""
        found = {ask.request.id: len(draft) for ask, draft in zip(asks, drafts, strict=True)}
        counts = self.adapter.trim(found, num_tokens, is_queued=is_queued)
        for ask, draft in zip(asks, drafts, strict=True):
            del draft[counts[ask.request.id] :]

    def observe(self, request: Request, num_proposed: int, num_accepted: int) -> None:
        """The step under way computed `num_proposed` draft tokens for the request, 1 or more."""
        self._num_draft_tokens += num_proposed
        self._num_accepted += num_accepted
        self.stats.observe(num_proposed, num_accepted)
        if request.finish_reason is None:
            self.adapter.observe_acceptance(request.id, num_proposed, num_accepted)

    def observe_rest(self, steps: Sequence[tuple[int, float]]) -> None:
        """The tokens and seconds of steps that were left alone. To be told before the next one."""
        self.adapter.observe_rest(steps)

    def observe_step(self, num_tokens: int, seconds: float) -> int:
        """The step computed `num_tokens` tokens, draft tokens among them, in `seconds`. Returns how
        many steps to come are to be left alone: there is nothing to `propose`."""
        if self.stats.failure is not None:
            return 0
        start_s = time.perf_counter()
        self.adapter.observe_step(
            num_tokens,
            self._num_draft_tokens,
            seconds,
            num_accepted=self._num_accepted,
            drafting_s=self._drafting_s,
        )
        self._learning_s = time.perf_counter() - start_s
        return self.adapter.take_rest()

    def forget(self, request: Request) -> None:
        """The request has ended."""
        self.adapter.forget(request.id)
        if self.stats.failure is None:
            self.proposer.forget(request)
