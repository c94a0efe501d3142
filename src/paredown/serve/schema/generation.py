"""The fields that completions and chat completions have in common."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from paredown.engine.sampling.sampling_defaults import SamplingDefaults
from paredown.engine.sampling.sampling_params import MAX_CHOICES, SamplingParams
from paredown.engine.schedule.service import Service
from paredown.serve.errors import HttpError
from paredown.serve.schema.strict import NO_OPS, Label, Strict, TokenIds, drop_no_ops
from paredown.serve.schema.structure import Structure
from paredown.shown import shown_list

MAX_STOPS = 16
MAX_TOKEN_ID_DIGITS = 10
# Keys of logit_bias that one message names.
MAX_WRONG_KEYS = 8
MAX_BIASES = 1024
MAX_STOP_TOKENS = 256
MAX_BAD_WORDS = 256
MAX_BAD_WORD_TOKENS = 64
MAX_METADATA = 64

# Fields that have the same meaning in SamplingParams; absent or null is the default.
SAME_NAMES = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "min_tokens",
    "seed",
    "ignore_eos",
)


def _at_most(most: int) -> BeforeValidator:
    """Limits the entries, which would otherwise all be validated before they are counted."""

    def count(value: Any) -> Any:
        if isinstance(value, dict) and len(value) > most:
            raise PydanticCustomError(
                "too_long", "It holds {num}, at most {most}", {"num": len(value), "most": most}
            )
        return value

    return BeforeValidator(count)


# Lists stop at their first wrong entry: the errors of a long one would take gigabytes.
Stops = Annotated[list[str], Field(fail_fast=True, max_length=MAX_STOPS)]
StopTokens = Annotated[list[int], Field(fail_fast=True, max_length=MAX_STOP_TOKENS)]
BadWord = Annotated[list[int], Field(fail_fast=True, max_length=MAX_BAD_WORD_TOKENS)]
BadWords = Annotated[list[BadWord], Field(fail_fast=True, max_length=MAX_BAD_WORDS)]
Biases = Annotated[dict[str, float], _at_most(MAX_BIASES)]

Metadata = Annotated[dict[Label, Label], _at_most(MAX_METADATA)]


class StreamOptions(Strict):
    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


class Generation(Structure):
    """The fields of both endpoints. `user` names the tenant for fair shares. Clients that send no
    `cache_salt` share cached prefixes with each other. The labels at the end have no effect."""

    no_ops: ClassVar[Mapping[str, tuple[object, ...]]] = NO_OPS

    model: Label | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Biases | None = None
    allowed_token_ids: TokenIds | None = None
    bad_words: BadWords | None = None
    min_tokens: int | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    seed: int | None = None
    stop: str | Stops | None = None
    stop_token_ids: StopTokens | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    timings: bool | None = None
    user: Label | None = None
    priority: int | None = None
    deadline_s: float | None = None
    cache_salt: Label | None = None
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None
    prompt_cache_retention: Label | None = None
    metadata: Metadata | None = None
    service_tier: Label | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_no_ops(cls, fields: Any) -> Any:
        return drop_no_ops(fields, cls.no_ops)

    def service(self) -> Service:
        """Returns the service. Raises ParameterError for values out of range."""
        return Service(
            tenant=self.user or "",
            priority=self.priority or 0,
            deadline_s=self.deadline_s,
            cache_salt=self.cache_salt or "",
        )

    @property
    def includes_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    def sampling_params(
        self,
        defaults: SamplingDefaults,
        *,
        max_tokens: int | None,
        logprobs: int | None,
        prompt_logprobs: int | None = None,
    ) -> SamplingParams:
        """Returns the sampling parameters; `defaults` hold for what the request leaves out. Raises
        ParameterError for values out of range, and HttpError for contradictory ones."""
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if self.stream_options is not None and not self.stream:
            raise HttpError(400, "stream_options needs stream to be true", param="stream_options")
        given: dict[str, Any] = defaults.of_draws | {
            name: value for name in SAME_NAMES if (value := getattr(self, name)) is not None
        }
        if self.allowed_token_ids is not None:
            given["allowed_token_ids"] = tuple(self.allowed_token_ids)
        return SamplingParams(
            n=self.n or 1,
            max_tokens=max_tokens,
            logit_bias=self._biases(),
            bad_words=tuple(map(tuple, self.bad_words or ())),
            stop=tuple(stop),
            stop_token_ids=tuple(self.stop_token_ids or ()),
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
            grammar=self.grammar(),
            **given,
        )

    def _biases(self) -> dict[int, float]:
        """Returns the biases with integer keys, which JSON lacks."""
        given = self.logit_bias or {}
        wrong = [key for key in given if not _is_token_id(key)]
        if wrong:
            raise HttpError(
                400,
                f"logit_bias: keys should be token ids (saw: {shown_list(wrong, MAX_WRONG_KEYS)})",
                param="logit_bias",
                code="invalid_value",
            )
        return {int(key): bias for key, bias in given.items()}


def _is_token_id(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) <= MAX_TOKEN_ID_DIGITS
