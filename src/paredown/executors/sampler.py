"""Sampler: from rows of logits to tokens, the part of an executor that draws.

A row's token depends on that row, its request's state, and the request's seed alone: the draw is a
race with counter-based noise (Philox, Salmon et al., SC 2011), a function of the seed, the position
and the token. What is computed, and in which order, is defined in docs/internals/sampling.md.
R: rows, V: vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from paredown.executors.draw_settings import DrawSettings

Logits = npt.NDArray[np.float32]
Probs = npt.NDArray[np.float64]

# Why a row has no token.
NOT_FINITE = "the model failed: its logits are not finite"
NOTHING_ALLOWED = "the request's own settings allow no token here"


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


class SamplingState(Protocol):
    """What a sampler keeps of one request: settings, tokens, counts. Only the sampler that made it
    can read it. Sampling a row adds its token."""

    @property
    def num_tokens(self) -> int:
        """Counts the tokens of the prompt and of the answer so far."""
        ...

    def push(self, token: int, /) -> None:
        """Adds a token that was not sampled."""
        ...

    def pop(self) -> None:
        """Takes the last token of the answer back."""
        ...

    def allow_next(self, tokens: npt.NDArray[np.int32], /) -> None:
        """Limits the next draw to these tokens."""
        ...


class Sampler(Protocol):
    """Draws tokens for many rows in one call. Not thread-safe: one caller at a time."""

    def make_state(
        self, settings: DrawSettings, prompt_token_ids: Sequence[int], vocab_size: int
    ) -> SamplingState:
        """The state of a request before its first token. Raises ValueError for an unknown token
        id."""
        ...

    def sample(self, logits_RV: Logits, states: list[SamplingState]) -> SampledRows:
        """One token for each row, pushed onto the row's state unless the row failed."""
        ...

    def sample_runs(
        self,
        logits_RV: Logits,
        first_rows: list[int],
        drafts: list[Sequence[int]],
        states: list[SamplingState],
    ) -> list[list[SampledToken]]:
        """Draws a run of tokens for each state. The first is drawn from the row `first_rows[i]`; as
        long as the token drawn is the next of `drafts[i]`, another is drawn from the row behind.
        A state with n draft tokens has n + 1 rows."""
        ...

    def distribution(self, logits_1V: Logits, state: SamplingState) -> Probs:
        """The probabilities [1, V] that `sample` draws from; a greedy row has a single 1. Raises
        RowError for a row without a distribution."""
        ...

    def logprobs(self, logits_RV: Logits, token_ids: Sequence[int], num_top: int) -> list[Logprobs]:
        """Log-probabilities of the tokens that stand after each row. Raises RowError."""
        ...
