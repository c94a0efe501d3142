"""Speculator: asks the proposer before a step, and learns from what the step made of the guesses.

The engine computes a request's guesses beside its last certain token, takes the next token at each
of those places in turn, and goes on while it is the one that was guessed (Engine._take_tokens).
"""

import logging
import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from paredown.engine.request import Request
from paredown.engine.sampling.sampler import RowError, RowSampler, SampledRow
from paredown.engine.speculate.accept import rejection_sample
from paredown.engine.speculate.adapt import Adapter
from paredown.engine.speculate.proposer import NO_DRAFT, Ask, Draft, Proposer
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.engine.speculate.stats import SpeculationStats
from paredown.kernels.native_sampler import SamplingState

LOGGER = logging.getLogger(__name__)


class Speculator:
    """Guesses for the requests of one engine. A proposer that fails ends no answer: it is not asked
    again, and `stats.failure` says why."""

    def __init__(self, proposer: Proposer, config: SpeculationConfig) -> None:
        self.proposer = proposer
        self.config = config
        self.stats = SpeculationStats()
        self.adapter = Adapter()
        # Of each request with a draft in the step under way.
        self._drafts: dict[int, Draft] = {}
        self._num_guesses = 0

    @property
    def rejects(self) -> bool:
        """Whether tokens are drawn by `sample`, and not as without speculation."""
        return self.config.verification == "rejection"

    def propose(
        self,
        running: Sequence[Request],
        state_of: Callable[[Request], SamplingState],
        max_step_tokens: int,
    ) -> None:
        """Gives drafts to those whose next step computes their last token. `running` are all that
        the step will compute, of at most `max_step_tokens` tokens."""
        self._drafts, self._num_guesses = {}, 0
        if self.stats.failure is not None or (self.config.is_adaptive and self.adapter.rests()):
            return
        wanted, limits, longest = 0, {}, self.config.num_draft_tokens
        for one in running:
            if one.draft_token_ids:  # it had no place in the last step
                one.draft_token_ids = []
            num_tokens = len(one.token_ids)
            num_uncomputed = num_tokens - one.num_computed_tokens
            wanted += num_uncomputed
            # No guess may stand where the request ends, whose last token is the model's, or beyond.
            room = one.max_total_tokens - num_tokens - 1
            if num_uncomputed == 1 and room > 0:
                limits[one.id] = min(longest, room)
        if self.config.is_adaptive:
            limits = self.adapter.choose(limits, min(wanted, max_step_tokens))
        asks = [Ask(one, limits[one.id], state_of(one)) for one in running if limits.get(one.id)]
        if not asks:
            return
        start_s = time.perf_counter()
        try:
            drafts = self.proposer.propose(asks)
        except Exception as error:  # guessing must not end an answer
            self.stats.failure = f"{type(error).__name__}: {error}"
            LOGGER.exception("speculation has failed and is off")
            return
        seconds = time.perf_counter() - start_s
        self.stats.proposal_s += seconds
        self.adapter.observe_proposal(max(ask.max_tokens for ask in asks), seconds)
        for ask, draft in zip(asks, drafts, strict=True):
            assert len(draft.token_ids) <= ask.max_tokens
            if draft.token_ids:
                ask.request.draft_token_ids = list(draft.token_ids)
                self._drafts[ask.request.id] = draft

    def sample(
        self,
        sampler: RowSampler,
        logits_RV: npt.NDArray[np.float32],
        states: list[SamplingState],
        requests: list[Request],
        places: list[int],
    ) -> list[SampledRow]:
        """The next token of each request by rejection sampling, where guess number `places[r]`
        stands, if there is one; pushed onto its state."""
        return [
            self._sample_one(sampler, logits_RV[r : r + 1], states[r], request, places[r])
            for r, request in enumerate(requests)
        ]

    def observe(self, request: Request, num_proposed: int, num_accepted: int) -> None:
        """The step under way computed `num_proposed` guesses for the request, 1 or more."""
        self._num_guesses += num_proposed
        self.stats.observe(num_proposed, num_accepted)
        if request.finish_reason is None:
            self.adapter.observe_acceptance(request.id, num_proposed, num_accepted)

    def observe_step(self, num_tokens: int, seconds: float) -> None:
        """The step computed `num_tokens` tokens, guesses among them, in `seconds`."""
        self.adapter.observe_step(num_tokens, self._num_guesses, seconds)

    def forget(self, request: Request) -> None:
        """The request has ended."""
        self.adapter.forget(request.id)
        if self.stats.failure is None:
            self.proposer.forget(request)

    def _sample_one(
        self,
        sampler: RowSampler,
        logits_RV: npt.NDArray[np.float32],
        state: SamplingState,
        request: Request,
        place: int,
    ) -> SampledRow:
        params, draft = request.params, self._drafts.get(request.id, NO_DRAFT)
        if params.temperature == 0 or place >= len(draft.token_ids):
            return sampler.sample(logits_RV, [state])[0]
        try:
            p_V = sampler.distributions(logits_RV, state)[0]
        except RowError as error:
            return SampledRow(-1, None, str(error))
        token_id = rejection_sample(
            p_V,
            draft.probs_KV[place] if draft.probs_KV else None,
            draft.token_ids[place],
            seed=request.seed,
            position=len(request.token_ids),
        )
        state.push(token_id)
        if params.logprobs is None:
            return SampledRow(token_id, None, None)
        return SampledRow(
            token_id, sampler.logprobs(logits_RV, [token_id], params.logprobs)[0], None
        )
