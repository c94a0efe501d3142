"""WholeText: puts the special tokens around the tokens of a text, or of a pair."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from paredown.errors import ConfigError
from paredown.models.text.pair_form import PairForm

_LEAST_PAIR_TOKENS = 2


class SurroundingTokenizer(Protocol):
    """The part of a tokenizer that tells what stands around a text, and encodes it."""

    prompt_prefix: tuple[int, ...]
    prompt_suffix: tuple[int, ...]

    @property
    def pair_form(self) -> PairForm: ...
    def encode(self, text: str) -> list[int]: ...


@dataclass(frozen=True, kw_only=True)
class WholeText:
    """Texts have at most `max_tokens` tokens, special ones too; a longer one is cut before those at
    its end."""

    tokenizer: SurroundingTokenizer
    max_tokens: int

    def __post_init__(self) -> None:
        if self.room < 1:
            raise ConfigError(
                "there is no room for a text beside its special tokens",
                seen=f"{self.max_tokens} tokens",
                remedy="Allow more tokens.",
            )

    @property
    def room(self) -> int:
        """The tokens of a text itself that fit."""
        tokenizer = self.tokenizer
        return self.max_tokens - len(tokenizer.prompt_prefix) - len(tokenizer.prompt_suffix)

    def put(self, ids: Sequence[int]) -> list[int]:
        """Returns the tokens of a text between the special tokens."""
        tokenizer = self.tokenizer
        return [*tokenizer.prompt_prefix, *ids[: self.room], *tokenizer.prompt_suffix]

    def encode(self, text: str) -> list[int]:
        return self.put(self.tokenizer.encode(text))

    def encode_pair(self, text: str, pair: str) -> tuple[list[int], list[int]]:
        """Returns the tokens of a pair and the segment of each. The longer text is cut where both
        are too long together. Raises RequestError for a tokenizer that encodes no pairs."""
        form = self.tokenizer.pair_form
        first, second = self.tokenizer.encode(text), self.tokenizer.encode(pair)
        room = self.max_tokens - form.num_special_tokens
        if room < _LEAST_PAIR_TOKENS:
            raise ConfigError(
                "there is no room for a pair beside its special tokens",
                seen=f"{self.max_tokens} tokens",
                remedy="Allow more tokens.",
            )
        while len(first) + len(second) > room:
            longer = first if len(first) >= len(second) else second
            longer.pop()
        return form.joined(first, second)
