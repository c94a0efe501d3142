"""The request schema. It is strict: a field that we do not serve is refused by name, unless its
value asks for nothing."""

from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.service import Service
from paredown.serve.errors import HttpError

MAX_CHOICES = 8
MAX_PROMPTS = 64
MAX_STOPS = 4
MAX_MESSAGES = 4096
DEFAULT_COMPLETION_TOKENS = 16
MAX_TOKEN_ID_DIGITS = 10
MAX_PARTS = 4096
MAX_BIASES = 1024
MAX_STOP_TOKENS = 256
MAX_BAD_WORDS = 256
MAX_BAD_WORD_TOKENS = 64
# No object has this many known fields; beyond that, each unknown field would be an error.
MAX_FIELDS = 64
# The limit for a client's field name in messages.
MAX_SHOWN_CHARS = 64

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

# Fields of the OpenAI API and its extensions that we do not serve, each with the values that ask
# for nothing. Type and value must be equal.
NO_OPS: dict[str, tuple[object, ...]] = {
    "audio": (None,),
    "best_of": (None, 1),
    "echo": (None, False),
    "function_call": (None, "none"),
    "functions": (None, []),
    "metadata": (None, {}),
    "modalities": (None, ["text"]),
    "parallel_tool_calls": (None, True, False),
    "prediction": (None,),
    "reasoning_effort": (None,),
    "response_format": (None, {"type": "text"}),
    "service_tier": (None, "auto", "default"),
    "store": (None, False),
    "suffix": (None, ""),
    "tool_choice": (None, "none", "auto"),
    "tools": (None, []),
    "verbosity": (None,),
    "web_search_options": (None,),
}
# The same for a message of a conversation.
MESSAGE_NO_OPS: dict[str, tuple[object, ...]] = {
    "annotations": (None, []),
    "audio": (None,),
    "function_call": (None,),
    "name": (None,),
    "refusal": (None,),
    "tool_calls": (None, []),
}


def _few_biases(value: Any) -> Any:
    """Limits the entries, which would otherwise all be validated before they are counted."""
    if isinstance(value, dict) and len(value) > MAX_BIASES:
        raise PydanticCustomError(
            "too_long", "It holds {num}, at most {most}", {"num": len(value), "most": MAX_BIASES}
        )
    return value


Label = Annotated[str, Field(max_length=1024)]
# Lists stop at their first wrong entry: the errors of a long one would take gigabytes.
Texts = Annotated[list[str], Field(fail_fast=True)]
Stops = Annotated[list[str], Field(fail_fast=True, max_length=MAX_STOPS)]
TokenIds = Annotated[list[int], Field(fail_fast=True)]
StopTokens = Annotated[list[int], Field(fail_fast=True, max_length=MAX_STOP_TOKENS)]
TokenSequences = Annotated[list[TokenIds], Field(fail_fast=True)]
BadWord = Annotated[list[int], Field(fail_fast=True, max_length=MAX_BAD_WORD_TOKENS)]
BadWords = Annotated[list[BadWord], Field(fail_fast=True, max_length=MAX_BAD_WORDS)]
Biases = Annotated[dict[str, float], BeforeValidator(_few_biases)]


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _count_fields(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and len(fields) > MAX_FIELDS:
            raise PydanticCustomError(
                "too_many_fields",
                "The object holds {num} fields, at most {most}",
                {"num": len(fields), "most": MAX_FIELDS},
            )
        return fields


class StreamOptions(Strict):
    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


class Generation(Strict):
    """The fields of both endpoints. `user` names the tenant for fair shares. Clients that send no
    `cache_salt` share cached prefixes with each other. Other labels of a client have no effect."""

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
    user: Label | None = None
    priority: int | None = None
    deadline_s: float | None = None
    cache_salt: Label | None = None
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_no_ops(cls, fields: Any) -> Any:
        return drop_no_ops(fields, NO_OPS)

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

    def sampling_params(self, *, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
        """Returns the sampling parameters. Raises ParameterError for values out of range, and
        HttpError for contradictory ones."""
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if self.stream_options is not None and not self.stream:
            raise HttpError(400, "stream_options needs stream to be true", param="stream_options")
        given: dict[str, Any] = {
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
            **given,
        )

    def _biases(self) -> dict[int, float]:
        """Returns the biases with integer keys, which JSON lacks."""
        biases = {}
        for key, bias in (self.logit_bias or {}).items():
            if not (key.isascii() and key.isdigit() and len(key) <= MAX_TOKEN_ID_DIGITS):
                raise HttpError(
                    400,
                    f"logit_bias: {key[:MAX_TOKEN_ID_DIGITS]!r} is not a token id",
                    param="logit_bias",
                    code="invalid_value",
                )
            biases[int(key)] = bias
        return biases


class CompletionRequest(Generation):
    """The body of POST /v1/completions."""

    prompt: str | Texts | TokenIds | TokenSequences
    logprobs: int | None = None

    @field_validator("prompt", mode="before")
    @classmethod
    def _count_prompts(cls, prompt: Any) -> Any:
        """Raises HttpError for none or too many prompts."""
        if not isinstance(prompt, list):
            return prompt
        if not prompt:
            raise HttpError(400, "prompt is an empty list", param="prompt")
        if len(prompt) > MAX_PROMPTS and not isinstance(prompt[0], int):
            raise HttpError(
                400, f"prompt holds {len(prompt)} prompts, at most {MAX_PROMPTS}", param="prompt"
            )
        return prompt

    @property
    def prompts(self) -> list[str | list[int]]:
        # A list's entries all have the type of the first.
        is_one = isinstance(self.prompt, str) or isinstance(self.prompt[0], int)
        return cast("list[str | list[int]]", [self.prompt] if is_one else self.prompt)

    def params(self) -> SamplingParams:
        max_tokens = DEFAULT_COMPLETION_TOKENS if self.max_tokens is None else self.max_tokens
        return self.sampling_params(max_tokens=max_tokens, logprobs=self.logprobs)


class TextPart(Strict):
    type: Literal["text"]
    text: str


class Message(Strict):
    """One turn. `developer` is the newer name of `system`."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(fail_fast=True, max_length=MAX_PARTS)]

    @model_validator(mode="before")
    @classmethod
    def _drop_no_ops(cls, fields: Any) -> Any:
        return drop_no_ops(fields, MESSAGE_NO_OPS)

    def plain(self) -> dict[str, object]:
        """Returns the message in the form that chat templates expect."""
        parts = self.content
        text = parts if isinstance(parts, str) else "".join(part.text for part in parts)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class ChatRequest(Generation):
    """The body of POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None

    def params(self) -> SamplingParams:
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise HttpError(
                400, "give max_completion_tokens or max_tokens, not both", param="max_tokens"
            )
        if self.top_logprobs is not None and not self.logprobs:
            raise HttpError(400, "top_logprobs needs logprobs to be true", param="top_logprobs")
        max_tokens = self.max_completion_tokens
        return self.sampling_params(
            max_tokens=self.max_tokens if max_tokens is None else max_tokens,
            logprobs=(self.top_logprobs or 0) if self.logprobs else None,
        )


R = TypeVar("R", bound=BaseModel)


def parse(model: type[R], body: object) -> R:
    """Validates the body. Raises HttpError 400 that names the first field at fault."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise _as_http_error(error) from error


def drop_no_ops(fields: Any, no_ops: dict[str, tuple[object, ...]]) -> Any:
    """Returns the fields without unsupported ones whose value asks for nothing."""
    if not isinstance(fields, dict) or len(fields) > MAX_FIELDS:
        return fields
    return {
        name: value
        for name, value in fields.items()
        if not any(type(value) is type(one) and value == one for one in no_ops.get(name, ()))
    }


def _as_http_error(error: ValidationError) -> HttpError:
    first = error.errors(include_url=False, include_input=False)[0]
    if not first["loc"] and first["type"] == "too_many_fields":
        return HttpError(400, first["msg"], code="invalid_value")
    if not first["loc"]:
        return HttpError(400, "the body must be a JSON object", code="invalid_type")
    field = _cut(str(first["loc"][0]))
    path = ".".join(_cut(str(part)) for part in first["loc"])
    if first["type"] != "extra_forbidden":
        return HttpError(400, f"{path}: {first['msg']}", param=field, code="invalid_value")
    no_ops = NO_OPS | MESSAGE_NO_OPS
    name = str(first["loc"][-1])
    message = f"{path}: this field is not known"
    if name in no_ops:
        message = f"{path}: this field is not supported; leave it out"
    return HttpError(400, message, param=field, code="unsupported_parameter")


def _cut(name: str) -> str:
    return name if len(name) <= MAX_SHOWN_CHARS else f"{name[:MAX_SHOWN_CHARS]}..."
