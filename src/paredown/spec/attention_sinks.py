"""AttentionSinks: endless texts on a model that was trained on short ones (StreamingLLM)."""

from dataclasses import dataclass

from paredown.errors import ConfigError

# The longest streamed request, prompt and answer together: positions are 32-bit integers.
MAX_STREAMED_TOKENS = 2**30
# The attention kernel handles the sinks as one chunk (csrc/kernels/kernel_table.h, kChunkKeys).
MAX_SINK_TOKENS = 512


@dataclass(frozen=True, kw_only=True)
class AttentionSinks:
    """Attention sinks and a rolling window (arXiv 2309.17453, section 3.2).

    A token sees the first `num_sink_tokens` tokens and the last `window` ones, itself included.
    Distances to the sinks are counted within the cache, not in the text, so that they never exceed
    `num_sink_tokens + window - 1`.
    """

    num_sink_tokens: int = 4
    window: int = 1020

    def __post_init__(self) -> None:
        if not 1 <= self.num_sink_tokens <= MAX_SINK_TOKENS:
            raise ConfigError(
                "the number of attention sinks is out of range",
                seen=self.num_sink_tokens,
                remedy=f"Use 1 to {MAX_SINK_TOKENS}; 4 is the paper's.",
            )
        if self.window < 1:
            raise ConfigError(
                "the window beside the attention sinks is too small",
                seen=self.window,
                remedy="Use 1 or more.",
            )

    @property
    def num_kept_tokens(self) -> int:
        """The largest number of tokens that a token sees."""
        return self.num_sink_tokens + self.window

    def arithmetic(self) -> str:
        """Returns one line that says what every token sees."""
        return (
            f"attention sinks: every token sees the first {self.num_sink_tokens} and the last "
            f"{self.window:,} tokens; texts have no end"
        )
