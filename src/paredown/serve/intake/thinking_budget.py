"""ThinkingBudget: ends a model's reasoning after so many tokens, by writing its end for it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paredown.models.chat.reasoning_format import ReasoningFormat
from paredown.serve.state import ServerTokenizer


@dataclass(frozen=True, kw_only=True)
class ThinkingBudget:
    """A token filter of one prompt, which all its answers share: what it allows depends on their
    tokens alone. Reasoning begins with `start_ids` unless it `is_open` already, and ends with
    `end_ids`, or with tokens of the text `end`."""

    num_tokens: int
    is_open: bool
    start_ids: tuple[int, ...]
    end_ids: tuple[int, ...]
    end: str
    decode: Callable[[list[int]], str]

    @classmethod
    def of(
        cls,
        tokenizer: ServerTokenizer,
        reasoning: ReasoningFormat,
        *,
        num_tokens: int,
        is_open: bool,
    ) -> "ThinkingBudget":
        end = reasoning.end.strip()
        return cls(
            num_tokens=num_tokens,
            is_open=is_open,
            start_ids=tuple(tokenizer.encode(reasoning.start.strip())),
            end_ids=tuple(tokenizer.encode(end)),
            end=end,
            decode=tokenizer.decode,
        )

    def __call__(self, generated: list[int]) -> Sequence[int] | None:
        """Returns the only token that may come next, or None for any."""
        limit = self.num_tokens + (0 if self.is_open else len(self.start_ids))
        num_written = len(generated) - limit
        if not 0 <= num_written < len(self.end_ids):
            return None
        if not self.is_open and tuple(generated[: len(self.start_ids)]) != self.start_ids:
            return None
        if self._has_ended(generated[:limit]):
            return None
        return (self.end_ids[num_written],)

    def _has_ended(self, token_ids: list[int]) -> bool:
        size = len(self.end_ids)
        is_written = any(
            tuple(token_ids[i : i + size]) == self.end_ids for i in range(len(token_ids) - size + 1)
        )
        return is_written or self.end in self.decode(token_ids)
