"""KeptPages: which pages of a request stay in memory while it runs."""

from dataclasses import dataclass

from paredown.spec.context import Context
from paredown.spec.kv import PAGE_SIZE


@dataclass(frozen=True, kw_only=True)
class KeptPages:
    """Keeps the pages of the first `num_sink_tokens` tokens and of the last `window` tokens, as
    the next token to be computed sees them. With `window` None it keeps all pages."""

    num_sink_tokens: int = 0
    window: int | None = None

    @classmethod
    def of(cls, context: Context) -> "KeptPages":
        """Builds the rule for a context. A page is kept as long as any layer sees it."""
        return cls(num_sink_tokens=context.num_sink_tokens, window=context.kept_window)

    @property
    def num_sink_pages(self) -> int:
        return -(-self.num_sink_tokens // PAGE_SIZE)

    def num_released(self, num_computed_tokens: int) -> int:
        """Returns how many pages after the sinks' pages no later token sees."""
        if self.window is None:
            return 0
        first_seen = num_computed_tokens - self.window + 1
        return max(0, first_seen // PAGE_SIZE - self.num_sink_pages)

    def most_pages(self, num_step_tokens: int) -> int | None:
        """Returns the most pages that a request of any length holds when a step computes at most
        `num_step_tokens` of its tokens; None where the number depends on the length."""
        if self.window is None:
            return None
        num_tokens = self.window - 1 + num_step_tokens
        # In the worst case they begin at the last position of a page.
        return self.num_sink_pages + 1 + -(-(num_tokens - 1) // PAGE_SIZE)

    def pages_of(self, num_tokens: int, num_step_tokens: int) -> int:
        """Returns the most pages that a request of `num_tokens` tokens holds."""
        num_pages = -(-num_tokens // PAGE_SIZE)
        most = self.most_pages(num_step_tokens)
        return num_pages if most is None else min(num_pages, most)
