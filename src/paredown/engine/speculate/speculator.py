"""Speculator: gets drafts from the proposer before a step, and learns from their acceptance.

The engine computes a request's draft tokens together with its last certain token. It then draws the
next token at each place in turn, as long as the draft token matches (Engine._take_tokens).
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
    """Proposes draft tokens for the requests of one engine. If the proposer fails, no answer ends:
    it is not called again, and `stats.failure` says why."""

    def __init__(self, proposer: Proposer, config: SpeculationConfig) -> None:
        self.proposer = proposer
        self.config = config
        self.stats = SpeculationStats()
        self.adapter = Adapter()
        # Counts of the current step.
        self._num_draft_tokens = self._num_accepted = 0
        self._drafting_s = 0.0
        # The time spent on learning from the previous step.
        self._learning_s = 0.0

    def propose(
        self,
        running: Sequence[Request],
        state_of: Callable[[Request], SamplingState],
        max_step_tokens: int,
        *,
        is_queued: bool = False,
    ) -> bool:
        """Gives drafts to requests whose next step computes their last token; returns whether any
        request has one now. `running` holds all requests of the step, which has at most
        `max_step_tokens` tokens. `is_queued` says whether others wait for a place."""
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
            # No draft token may stand at or beyond the request's end: the last token is the model's
            # own.
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
        """Returns the proposer's drafts, or None when it failed, which must not end an answer."""
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
        """Shortens the drafts: lookups find something for only some requests, and less than
        requested."""
        found = {ask.request.id: len(draft) for ask, draft in zip(asks, drafts, strict=True)}
        counts = self.adapter.trim(found, num_tokens, is_queued=is_queued)
        for ask, draft in zip(asks, drafts, strict=True):
            del draft[counts[ask.request.id] :]

    def observe(self, request: Request, num_proposed: int, num_accepted: int) -> None:
        """Records that the current step computed `num_proposed` draft tokens for the request, at
        least 1."""
        self._num_draft_tokens += num_proposed
        self._num_accepted += num_accepted
        self.stats.observe(num_proposed, num_accepted)
        if request.finish_reason is None:
            self.adapter.observe_acceptance(request.id, num_proposed, num_accepted)

    def observe_rest(self, steps: Sequence[tuple[int, float]]) -> None:
        """Records the tokens and seconds of the steps of a rest, before the next step."""
        self.adapter.observe_rest(steps)

    def observe_step(self, num_tokens: int, seconds: float) -> int:
        """Records that the step computed `num_tokens` tokens, drafts included, in `seconds`.
        Returns how many of the next steps need no call of `propose`."""
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
        """Drops a request that has ended."""
        self.adapter.forget(request.id)
        if self.stats.failure is None:
            self.proposer.forget(request)
