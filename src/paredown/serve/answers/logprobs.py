"""Formats log-probabilities for JSON."""

from dataclasses import dataclass

from paredown.engine.detokenize import TokenDecoder
from paredown.engine.placed_tokens import PlacedToken, TokenPlacer, own_text
from paredown.executors.sampler import Logprobs, TokenLogprob

# The OpenAI API's value for a token of probability 0, since JSON has no minus infinity.
LOWEST_LOGPROB = -9999.0


@dataclass(frozen=True, slots=True)
class LogprobToken:
    """A token with the text that it adds, or its bytes if they are not whole characters."""

    text: str | bytes
    logprob: float

    @property
    def data(self) -> bytes:
        return self.text.encode() if isinstance(self.text, str) else self.text


@dataclass(frozen=True, slots=True)
class LogprobRow:
    """One row; `start` is the chosen token's position in the answer, in characters."""

    chosen: LogprobToken
    top: list[LogprobToken]
    start: int


class LogprobRows:
    """The rows of one answer, whole or in pieces, in order."""

    def __init__(self, tokenizer: TokenDecoder, prompt_token_ids: list[int]) -> None:
        self._tokenizer = tokenizer
        self._prompt_token_ids = prompt_token_ids
        # Created only for answers with rows.
        self._placer: TokenPlacer | None = None

    def place(self, token_id: int) -> PlacedToken:
        """Returns the text and position of the answer's next token."""
        if self._placer is None:
            self._placer = TokenPlacer(self._tokenizer, self._prompt_token_ids)
        return self._placer.place(token_id)

    def next_row(self, row: Logprobs) -> LogprobRow:
        placed = self.place(row.chosen.token_id)

        def told(one: TokenLogprob) -> LogprobToken:
            is_chosen = one.token_id == row.chosen.token_id
            text = placed.text if is_chosen else own_text(self._tokenizer, one.token_id)
            return LogprobToken(text, max(one.logprob, LOWEST_LOGPROB))

        return LogprobRow(told(row.chosen), [told(one) for one in row.top], placed.start)
