"""ThinkingBudget: ends a model's reasoning after so many tokens, by writing its end for it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paredown.models.chat.reasoning_format import ReasoningFormat
from paredown.serve.state import ServerTokenizer


@dataclass(frozen=True, kw_only=True)
class ThinkingBudget:
    """A token filter of one prompt, which all its answers share: what it allows depends on their
    tokens alone. Reasoning begins with `start` unless it `is_open` already, and ends with `end`,
    whatever tokens the model writes them with; `start_ids` and `end_ids` are the usual ones."""

    num_tokens: int
    is_open: bool
    start_ids: tuple[int, ...]
    end_ids: tuple[int, ...]
    start: str
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
        start, end = reasoning.start.strip(), reasoning.end.strip()
        return cls(
            num_tokens=num_tokens,
            is_open=is_open,
            start_ids=tuple(tokenizer.encode(start)),
            end_ids=tuple(tokenizer.encode(end)),
            start=start,
            end=end,
            decode=tokenizer.decode,
        )

    def __call__(self, generated: list[int]) -> Sequence[int] | None:
        """Returns the only token that may come next, or None for any."""
        limit = self.num_tokens + (0 if self.is_open else len(self.start_ids))
        num_written = len(generated) - limit
        if not 0 <= num_written < len(self.end_ids):
            return None
        text = self.decode(generated[:limit])
        is_reasoning = self.is_open or text.lstrip().startswith(self.start)
        if not is_reasoning or self.end in text:
            return None
        return (self.end_ids[num_written],)
