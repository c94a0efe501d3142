"""SamplingParams: how the tokens of one request are chosen, and when it ends.

docs/internals/sampling.md defines every step and their order.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final

from paredown.engine.grammar.grammar import Grammar
from paredown.engine.sampling.field_rules import (
    AGrammar,
    Flag,
    Function,
    Integer,
    Number,
    ParameterError,
    Rule,
    Texts,
    TokenIds,
    TokenNumbers,
    TokenSequences,
)

_NO_TOKENS: Final = frozenset[int]()
MAX_LOGPROBS = 20
MAX_CHOICES = 128
MAX_TEMPERATURE = 100.0
MAX_COUNT = 2**31

# Called with the tokens generated so far before each draw. It returns the ids that are allowed
# next, a NumPy array of bool over the vocabulary, or None for no limit. It must not keep the list.
# An exception or an empty result ends the request with an error.
TokenFilter = Callable[[list[int]], Any]

_PENALTY = Number(low=-2.0, high=2.0, remedy="Use a number from -2 to 2; 0 does nothing.")
_SHARE = Number(low=0.0, high=1.0, above=True, remedy="Use a number above 0 and at most 1.")

RULES: dict[str, Rule] = {
    "temperature": Number(low=0.0, high=MAX_TEMPERATURE, remedy="Use 0 (greedy) to 100."),
    "top_k": Integer(
        low=0, high=MAX_COUNT, optional=True, remedy="Use 1 or more, or 0 to keep every token."
    ),
    "top_p": _SHARE,
    "min_p": Number(low=0.0, high=1.0, remedy="Use a number from 0 (off) to 1."),
    "typical_p": _SHARE,
    "repetition_penalty": Number(low=0.01, high=100.0, remedy="Use 0.01 to 100; 1 does nothing."),
    "presence_penalty": _PENALTY,
    "frequency_penalty": _PENALTY,
    "logit_bias": TokenNumbers(
        max_count=1024, number=Number(low=-100.0, high=100.0, remedy="Use a bias of -100 to 100.")
    ),
    "allowed_token_ids": TokenIds(min_count=1, max_count=2**20, optional=True),
    "bad_words": TokenSequences(max_count=256, max_tokens=64),
    "token_filter": Function(),
    "grammar": AGrammar(),
    "seed": Integer(
        low=-(2**63),
        high=2**63 - 1,
        optional=True,
        remedy="Use an integer that fits 64 bits with a sign.",
    ),
    "n": Integer(low=1, high=MAX_CHOICES, remedy=f"Use 1 to {MAX_CHOICES}."),
    "max_tokens": Integer(
        low=0, high=MAX_COUNT, optional=True, remedy="Use 1 or more, or 0 to read the prompt alone."
    ),
    "min_tokens": Integer(low=0, high=MAX_COUNT, remedy="Use 0 or more."),
    "stop": Texts(max_count=16, max_chars=256),
    "stop_token_ids": TokenIds(max_count=256),
    "ignore_eos": Flag(),
    "logprobs": Integer(
        low=0, high=MAX_LOGPROBS, optional=True, remedy=f"Use 0 to {MAX_LOGPROBS}."
    ),
    "prompt_logprobs": Integer(
        low=0, high=MAX_LOGPROBS, optional=True, remedy=f"Use 0 to {MAX_LOGPROBS}."
    ),
}


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """Validated on creation. Raises ParameterError with the field, the value and the remedy.

    `temperature` 0 is greedy. `top_k` None (or 0) keeps every token. Repetition is counted over
    prompt and answer, presence and frequency over the answer. `bad_words` are sequences of token
    ids: the last one is forbidden where the others stand before it. An answer has the form of its
    `grammar` and ends where that does, whatever `ignore_eos` and `min_tokens` say. `seed` None lets
    the engine draw one; of `n` answers number i has seed + i. `max_tokens` None means as many as
    the context holds, 0 that the prompt is read and scored alone. Before `min_tokens` no stop ends
    the answer. A single text may be `stop`, and lists may be given where tuples are kept.
    `logprobs` None asks for none, 0 for the chosen token's, k for the k best tokens' as well;
    `prompt_logprobs` the same of the prompt.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    allowed_token_ids: Sequence[int] | None = None
    bad_words: Sequence[Sequence[int]] = ()
    token_filter: TokenFilter | None = None
    grammar: Grammar | None = None
    seed: int | None = None
    n: int = 1
    max_tokens: int | None = 128
    min_tokens: int = 0
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        # What the caller does to its own lists later is no business of this.
        for name in ("allowed_token_ids", "bad_words", "stop", "stop_token_ids"):
            if isinstance(value := getattr(self, name), list):
                object.__setattr__(self, name, tuple(value))
        if isinstance(words := self.bad_words, tuple):
            words = tuple(tuple(one) if isinstance(one, list) else one for one in words)
            object.__setattr__(self, "bad_words", words)
        for name, rule in RULES.items():
            rule.check(name, getattr(self, name))
        object.__setattr__(self, "logit_bias", dict(self.logit_bias))
        if self.allowed_token_ids is not None:
            # Bounded by a vocabulary, because each generated token walks over them.
            object.__setattr__(
                self, "allowed_token_ids", tuple(dict.fromkeys(self.allowed_token_ids))
            )
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ParameterError(
                "min_tokens",
                seen=f"{self.min_tokens}, max_tokens {self.max_tokens}",
                remedy="Use at most max_tokens.",
            )

    def ending_token_ids(self, eos_token_ids: Iterable[int]) -> frozenset[int]:
        """Returns the token ids that end the answer."""
        # Usually the tokenizer's own set, one object for all requests.
        ignores_eos = self.ignore_eos and self.grammar is None
        ending = _NO_TOKENS if ignores_eos else frozenset(eos_token_ids)
        return ending.union(self.stop_token_ids) if self.stop_token_ids else ending

    def choice(self, number: int) -> "SamplingParams":
        """Returns the parameters of answer `number` of `n`: its seed is seed + number, wrapped at
        64 bits."""
        seed = self.seed
        if seed is not None:
            seed = (seed + number + 2**63) % 2**64 - 2**63
        # Skips the checks of __post_init__: lists may be long and choices many.
        choice = copy(self)
        object.__setattr__(choice, "seed", seed)
        object.__setattr__(choice, "n", 1)
        return choice

    def check_token_ids(self, vocab_size: int) -> None:
        """Raises ParameterError for a token id outside the vocabulary."""
        # A dict can be changed after its first check.
        RULES["logit_bias"].check("logit_bias", self.logit_bias)
        named = {
            "stop_token_ids": self.stop_token_ids,
            "logit_bias": self.logit_bias,
            "allowed_token_ids": self.allowed_token_ids or (),
            "bad_words": [token_id for word in self.bad_words for token_id in word],
        }
        for name, token_ids in named.items():
            largest = max(token_ids, default=0)
            if largest >= vocab_size:
                raise ParameterError(
                    name,
                    seen=largest,
                    remedy=f"The {vocab_size} token ids go from 0 to {vocab_size - 1}.",
                )
