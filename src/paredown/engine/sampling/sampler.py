"""Sampler: from rows of logits to tokens, in the native core (csrc/sampling/sampler.h).

A row's token depends on that row, its request's state, and the request's seed alone: the draw is a
race with counter-based noise (Philox, Salmon et al., SC 2011), a function of the seed, the position
and the token. What is computed, and in which order, is defined in docs/sampling.md.
R: rows, V: vocabulary.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.kernels.native_sampler import RowStatus, Sampler, SamplingState

Logits = npt.NDArray[np.float32]
Probs = npt.NDArray[np.float64]

FAILURES = {
    RowStatus.NOT_FINITE: "the model failed: its logits are not finite",
    RowStatus.NOTHING_ALLOWED: "the request's own settings allow no token here",
}


class TokenLogprob(NamedTuple):
    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Natural log-probabilities under the raw logits: nothing of the request's settings applied."""

    chosen: TokenLogprob
    top: list[TokenLogprob]


class SampledRows(NamedTuple):
    """A token for each row; a failure says why there is none, and ends its own request only."""

    token_ids: list[int]
    logprobs: list[Logprobs | None]
    failures: list[str | None]


class SampledToken(NamedTuple):
    """A token of a run; with a failure there is none, and nothing follows."""

    token_id: int
    logprobs: Logprobs | None
    failure: str | None


class RowError(ArithmeticError):
    """A row of logits has no distribution; the message says why."""


def make_state(
    params: SamplingParams,
    *,
    seed: int,
    vocab_size: int,
    prompt_token_ids: Sequence[int],
    eos_token_ids: Iterable[int] = (),
) -> SamplingState:
    """What the core keeps of one request: settings, tokens, counts. Sampling a row adds its token;
    `push` and `pop` add and take back others. Raises ValueError for an unknown token id."""
    settings: dict[str, object] = {
        "temperature": params.temperature,
        "top_k": params.top_k or 0,
        "top_p": params.top_p,
        "min_p": params.min_p,
        "typical_p": params.typical_p,
        "repetition_penalty": params.repetition_penalty,
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "logit_bias": list(params.logit_bias.items()),
        "allowed_tokens": params.allowed_token_ids,
        "bad_words": params.bad_words,
        "min_tokens": params.min_tokens,
        "ending_tokens": sorted(params.ending_token_ids(eos_token_ids)),
        "num_logprobs": -1 if params.logprobs is None else params.logprobs,
        "seed": seed % 2**64,
    }
    return SamplingState(settings, vocab_size, np.array(prompt_token_ids, np.int32))


class RowSampler:
    """Draws tokens for many rows in one call. Not thread-safe: one caller at a time."""

    def __init__(self, core: Sampler) -> None:
        self._core = core

    def sample(self, logits_RV: Logits, states: list[SamplingState]) -> SampledRows:
        """One token for each row, pushed onto the row's state unless the row failed."""
        token_ids, others = self._core.sample(logits_RV, states)
        num_rows = len(token_ids)
        rows = SampledRows(token_ids, [None] * num_rows, [None] * num_rows)
        for row, (status, found) in others.items():
            if status:
                rows.failures[row] = FAILURES[RowStatus(status)]
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
        """As `sample`, from the first row of each state; and where that token is the first of its
        draft tokens from the row behind, and so on, which are as many rows as draft tokens."""
        runs = self._core.sample_runs(logits_RV, first_rows, drafts, states)
        return [[_as_token(*one) for one in run] for run in runs]

    def distribution(self, logits_1V: Logits, state: SamplingState) -> Probs:
        """The probabilities [1, V] that `sample` draws from; a greedy row has a single 1. Raises
        RowError for a row without a distribution."""
        probs_1V = np.empty(logits_1V.shape, np.float64)
        if status := self._core.distribution(logits_1V, state, probs_1V):
            raise RowError(FAILURES[RowStatus(status)])
        return probs_1V

    def logprobs(self, logits_RV: Logits, token_ids: Sequence[int], num_top: int) -> list[Logprobs]:
        """Log-probabilities of the tokens that stand after each row. Raises RowError."""
        rows = self._core.logprobs(logits_RV, np.array(token_ids, np.int32), num_top)
        if failed := [status for status, _ in rows if status]:
            raise RowError(FAILURES[RowStatus(failed[0])])
        scored = zip(token_ids, rows, strict=True)
        return [_as_logprobs(token_id, found) for token_id, (_, found) in scored if found]


def _as_token(
    token_id: int, status: int, found: tuple[float, list[tuple[int, float]]] | None
) -> SampledToken:
    failure = FAILURES[RowStatus(status)] if status else None
    return SampledToken(token_id, _as_logprobs(token_id, found) if found else None, failure)


def _as_logprobs(token_id: int, found: tuple[float, list[tuple[int, float]]]) -> Logprobs:
    chosen, top = found
    return Logprobs(TokenLogprob(token_id, chosen), [TokenLogprob(*one) for one in top])
