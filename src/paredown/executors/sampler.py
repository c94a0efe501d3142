"""Sampler: the part of an executor that draws tokens from rows of logits.

A row's token depends only on that row, its request's state and the request's seed. The draw is a
race with counter-based noise (Philox, Salmon et al., SC 2011), a function of seed, position and
token. docs/internals/sampling.md defines what is computed, and in which order. R: rows,
V: vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from paredown.executors.draw_settings import DrawSettings

Logits = npt.NDArray[np.float32]
Probs = npt.NDArray[np.float64]

# The reason why a row has no token.
NOT_FINITE = "the model failed: its logits are not finite"
NOTHING_ALLOWED = "the request's own settings allow no token here"


class TokenLogprob(NamedTuple):
    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Natural log-probabilities under the raw logits, without any of the request's settings."""

    chosen: TokenLogprob
    top: list[TokenLogprob]


class SampledRows(NamedTuple):
    """A token for each row. A failure says why a row has no token, and ends only its own
    request."""

    token_ids: list[int]
    logprobs: list[Logprobs | None]
    failures: list[str | None]


class SampledToken(NamedTuple):
    """A token of a run; after a failure there is none, and the run ends."""

    token_id: int
    logprobs: Logprobs | None
    failure: str | None


class RowError(ArithmeticError):
    """A row of logits has no distribution; the message says why."""


class SamplingState(Protocol):
    """A sampler's state for one request: settings, tokens, counts. Only the sampler that made it
    can read it. Sampling a row adds its token."""

    @property
    def num_tokens(self) -> int:
        """The number of tokens of the prompt and of the answer so far."""
        ...

    def push(self, token: int, /) -> None:
        """Adds a token that was not sampled."""
        ...

    def pop(self) -> None:
        """Removes the last token of the answer."""
        ...

    def allow_next(self, tokens: npt.NDArray[np.int32], /) -> None:
        """Limits the next draw to these tokens."""
        ...

    def mask_next(self, masks_RW: npt.NDArray[np.uint32], /) -> None:
        """Limits the next R draws, each to the tokens of one row of W words: bit t % 32 of word
        t // 32 allows token t. Where a mask leaves only tokens that end the answer, `min_tokens`
        does not forbid them."""
        ...


class Sampler(Protocol):
    """Draws tokens for many rows in one call. Not thread-safe: one caller at a time."""

    def make_state(
        self, settings: DrawSettings, prompt_token_ids: Sequence[int], vocab_size: int
    ) -> SamplingState:
        """Makes the state of a request before its first token. Raises ValueError for an unknown
        token id."""
        ...

    def sample(self, logits_RV: Logits, states: list[SamplingState]) -> SampledRows:
        """Draws one token for each row and pushes it onto the row's state unless the row failed."""
        ...

    def sample_runs(
        self,
        logits_RV: Logits,
        first_rows: list[int],
        drafts: list[Sequence[int]],
        states: list[SamplingState],
    ) -> list[list[SampledToken]]:
        """Draws a run of tokens for each state. The first comes from the row `first_rows[i]`. As
        long as the drawn token is the next of `drafts[i]`, another is drawn from the next row. A
        state with n draft tokens has n + 1 rows."""
        ...

    def distribution(self, logits_1V: Logits, state: SamplingState) -> Probs:
        """Returns the probabilities [1, V] that `sample` draws from; a greedy row has a single 1.
        Raises RowError for a row without a distribution."""
        ...

    def logprobs(self, logits_RV: Logits, token_ids: Sequence[int], num_top: int) -> list[Logprobs]:
        """Returns the log-probabilities of the tokens that follow each row. Raises RowError."""
        ...
