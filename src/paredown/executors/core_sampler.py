"""CoreSampler: the sampler of the native core (csrc/sampling/sampler.h), for logits from any
executor.

R: rows, V: vocabulary.
"""

from collections.abc import Sequence
from typing import cast

import numpy as np

from paredown.executors.draw_settings import DrawSettings
from paredown.executors.sampler import (
    NOT_FINITE,
    NOTHING_ALLOWED,
    Logits,
    Logprobs,
    Probs,
    RowError,
    SampledRows,
    SampledToken,
    SamplingState,
    TokenLogprob,
)
from paredown.kernels import native_sampler
from paredown.kernels.native_sampler import RowStatus

_FAILURES = {RowStatus.NOT_FINITE: NOT_FINITE, RowStatus.NOTHING_ALLOWED: NOTHING_ALLOWED}
_Found = tuple[float, list[tuple[int, float]]]


class CoreSampler:
    """Implements Sampler on the threads of `core`."""

    def __init__(self, core: native_sampler.Sampler) -> None:
        self._core = core

    @classmethod
    def with_threads(cls, num_threads: int) -> "CoreSampler":
        """Makes a sampler on its own threads."""
        return cls(native_sampler.sampler_with_threads(num_threads))

    def make_state(
        self, settings: DrawSettings, prompt_token_ids: Sequence[int], vocab_size: int
    ) -> SamplingState:
        """See Sampler.make_state."""
        num_logprobs = settings.num_logprobs
        fields: dict[str, object] = {
            "temperature": settings.temperature,
            "top_k": settings.top_k,
            "top_p": settings.top_p,
            "min_p": settings.min_p,
            "typical_p": settings.typical_p,
            "repetition_penalty": settings.repetition_penalty,
            "presence_penalty": settings.presence_penalty,
            "frequency_penalty": settings.frequency_penalty,
            "logit_bias": list(settings.logit_bias.items()),
            "allowed_tokens": settings.allowed_token_ids,
            "bad_words": settings.bad_words,
            "min_tokens": settings.min_tokens,
            "ending_tokens": settings.ending_token_ids,
            "num_logprobs": -1 if num_logprobs is None else num_logprobs,
            "seed": settings.seed,
        }
        prompt = np.array(prompt_token_ids, np.int32)
        return native_sampler.SamplingState(fields, vocab_size, prompt)

    def sample(self, logits_RV: Logits, states: list[SamplingState]) -> SampledRows:
        """See Sampler.sample."""
        token_ids, others = self._core.sample(logits_RV, own_states(states))
        num_rows = len(token_ids)
        rows = SampledRows(token_ids, [None] * num_rows, [None] * num_rows)
        for row, (status, found) in others.items():
            if status:
                rows.failures[row] = _FAILURES[RowStatus(status)]
            if found:
                rows.logprobs[row] = _as_logprobs(token_ids[row], found)
        return rows

    def sample_runs(
        self,
        logits_RV: Logits,
        first_rows: list[int],
        drafts: list[Sequence[int]],
        states: list[SamplingState],
    ) -> list[list[SampledToken]]:
        """See Sampler.sample_runs."""
        runs = self._core.sample_runs(logits_RV, first_rows, drafts, own_states(states))
        return [[_as_token(*one) for one in run] for run in runs]

    def distribution(self, logits_1V: Logits, state: SamplingState) -> Probs:
        """See Sampler.distribution."""
        probs_1V = np.empty(logits_1V.shape, np.float64)
        (own,) = own_states([state])
        if status := self._core.distribution(logits_1V, own, probs_1V):
            raise RowError(_FAILURES[RowStatus(status)])
        return probs_1V

    def logprobs(self, logits_RV: Logits, token_ids: Sequence[int], num_top: int) -> list[Logprobs]:
        """See Sampler.logprobs."""
        rows = self._core.logprobs(logits_RV, np.array(token_ids, np.int32), num_top)
        if failed := [status for status, _ in rows if status]:
            raise RowError(_FAILURES[RowStatus(failed[0])])
        scored = zip(token_ids, rows, strict=True)
        return [_as_logprobs(token_id, found) for token_id, (_, found) in scored if found]


def own_states(states: list[SamplingState]) -> list[native_sampler.SamplingState]:
    """Returns the states as the core knows them; the core rejects those that another sampler
    made."""
    return cast("list[native_sampler.SamplingState]", states)


def _as_token(token_id: int, status: int, found: _Found | None) -> SampledToken:
    failure = _FAILURES[RowStatus(status)] if status else None
    return SampledToken(token_id, _as_logprobs(token_id, found) if found else None, failure)


def _as_logprobs(token_id: int, found: _Found) -> Logprobs:
    chosen, top = found
    return Logprobs(TokenLogprob(token_id, chosen), [TokenLogprob(*one) for one in top])
