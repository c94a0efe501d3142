"""KeptPages: which pages of a request are kept while it runs."""

from dataclasses import dataclass

from paredown.spec.context import Context
from paredown.spec.kv import PAGE_SIZE


@dataclass(frozen=True, kw_only=True)
class KeptPages:
    """The pages of the first `num_sink_tokens` tokens and those that hold one of the last `window`
    tokens, as the next token to be computed sees them; with `window` None all of them."""

    num_sink_tokens: int = 0
    window: int | None = None

    @classmethod
    def of(cls, context: Context) -> "KeptPages":
        """A page is kept as long as one layer sees it, so all are where one layer sees all."""
        return cls(num_sink_tokens=context.num_sink_tokens, window=context.kept_window)

    @property
    def num_sink_pages(self) -> int:
        return -(-self.num_sink_tokens // PAGE_SIZE)

    def num_released(self, num_computed_tokens: int) -> int:
        """Pages behind those of the sinks that no later token sees."""
        if self.window is None:
            return 0
        first_seen = num_computed_tokens - self.window + 1
        return max(0, first_seen // PAGE_SIZE - self.num_sink_pages)

    def most_pages(self, num_step_tokens: int) -> int | None:
        """The most that a request holds, however long it is, when steps compute so many of its
        tokens; None: that depends on its length."""
        if self.window is None:
            return None
        num_tokens = self.window - 1 + num_step_tokens
        # They begin at the last place of a page at worst.
        return self.num_sink_pages + 1 + -(-(num_tokens - 1) // PAGE_SIZE)

    def pages_of(self, num_tokens: int, num_step_tokens: int) -> int:
        """The most that a request of so many tokens holds."""
        num_pages = -(-num_tokens // PAGE_SIZE)
        most = self.most_pages(num_step_tokens)
        return num_pages if most is None else min(num_pages, most)
