"""Context: what a token may see while a model runs."""

from dataclasses import dataclass

from paredown.errors import ConfigError, UnsupportedError
from paredown.spec.attention_sinks import MAX_STREAMED_TOKENS, AttentionSinks
from paredown.spec.model import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Context:
    """A model and how it runs on texts of any length.

    Where `sinks` is given, the sinks and their window replace the layers' own windows. Raises
    UnsupportedError for other than rotary positions, and ConfigError where sinks
    and window exceed the model's context.
    """

    spec: ModelSpec
    sinks: AttentionSinks | None = None

    def __post_init__(self) -> None:
        if self.sinks is None:
            return
        if not self.spec.is_rotary:
            raise UnsupportedError(
                "attention sinks need rotary positions",
                seen=f"{self.spec.family}, whose positions are of another kind",
                remedy="Run this model without --attention-sinks.",
            )
        limit = min((self.spec.max_positions, *self.spec.windows))
        if self.sinks.num_kept_tokens > limit:
            num_sinks, window = self.sinks.num_sink_tokens, self.sinks.window
            raise ConfigError(
                "attention sinks and their window are longer than what the model was trained on",
                seen=f"{num_sinks} + {window} tokens, {limit} positions",
                remedy=f"Use a window of at most {limit - num_sinks} tokens.",
            )

    def layer_window(self, layer: int) -> int | None:
        """Returns how many tokens a token sees in a layer, not counting sinks; None means all
        before it."""
        if self.sinks is not None:
            return self.sinks.window
        return self.spec.layers[layer].attention.window

    @property
    def kept_window(self) -> int | None:
        """The number of last tokens whose keys and values some layer still sees, without sinks;
        None: all."""
        windows = [self.layer_window(layer) for layer in range(self.spec.num_layers)]
        sizes = [window for window in windows if window is not None]
        return max(sizes) if len(sizes) == len(windows) else None

    @property
    def num_sink_tokens(self) -> int:
        return 0 if self.sinks is None else self.sinks.num_sink_tokens

    @property
    def max_request_tokens(self) -> int:
        """The longest text that the model takes."""
        return self.spec.max_positions if self.sinks is None else MAX_STREAMED_TOKENS

    @property
    def costed_spec(self) -> ModelSpec:
        """The spec with the number of visible tokens, sinks included, as its windows. A step costs
        the same with either."""
        if self.sinks is None:
            return self.spec
        return self.spec.with_window(self.sinks.num_kept_tokens)
