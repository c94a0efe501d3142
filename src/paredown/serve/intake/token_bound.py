"""TokenBound: limits the length of an answer, whatever its client asks for."""

from copy import copy
from dataclasses import dataclass

from paredown.engine.sampling.field_rules import ParameterError
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.errors import ConfigError
from paredown.spec.context import Context

# The default for texts without end, where the context ends no answer: some minutes of a small
# model.
DEFAULT_STREAMED_TOKENS = 32_768


@dataclass(frozen=True)
class TokenBound:
    """The most tokens of an answer; None where only the model's context bounds it. Raises
    ConfigError."""

    max_answer_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.max_answer_tokens is not None and self.max_answer_tokens < 1:
            raise ConfigError(
                "answers of no tokens",
                seen=f"--max-answer-tokens {self.max_answer_tokens}",
                remedy="Use 1 or more.",
            )

    @classmethod
    def of(cls, context: Context, asked: int | None) -> "TokenBound":
        """Returns the bound `asked` for, or the default: none if the context ends an answer."""
        if asked is None and context.sinks is not None:
            asked = max(context.spec.max_positions, DEFAULT_STREAMED_TOKENS)
        return cls(asked)

    def apply(self, params: SamplingParams) -> SamplingParams:
        """Returns the parameters within the bound, which is also the default `max_tokens`. Raises
        ParameterError for more."""
        most = self.max_answer_tokens
        if most is None:
            return params
        for name, number in (("max_tokens", params.max_tokens), ("min_tokens", params.min_tokens)):
            if number is not None and number > most:
                raise ParameterError(
                    name,
                    seen=number,
                    remedy=f"This server gives answers of at most {most} tokens "
                    "(--max-answer-tokens).",
                )
        if params.max_tokens is not None:
            return params
        # Skips the checks of a new object: lists of a request may be long.
        bounded = copy(params)
        object.__setattr__(bounded, "max_tokens", most)
        return bounded
