"""What a client may send. Strict: a field that we do not serve is refused by name, unless its value
asks for nothing."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.service import Service
from paredown.serve.errors import HttpError

MAX_CHOICES = 8
MAX_PROMPTS = 64
MAX_STOPS = 4
MAX_MESSAGES = 4096
DEFAULT_COMPLETION_TOKENS = 16
MAX_TOKEN_ID_DIGITS = 10

# Fields that mean to us what they mean to SamplingParams; left out or null is its default.
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

# Fields of the OpenAI API (and of clients that extend it) that we do not serve, each with the
# values that ask for nothing. Equal type and value count.
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
# The same for one message of a conversation.
MESSAGE_NO_OPS: dict[str, tuple[object, ...]] = {
    "annotations": (None, []),
    "audio": (None,),
    "function_call": (None,),
    "name": (None,),
    "refusal": (None,),
    "tool_calls": (None, []),
}

Label = Annotated[str, Field(max_length=1024)]
# Lists end at their first wrong entry: of a long one the errors would take gigabytes.
Texts = Annotated[list[str], Field(fail_fast=True)]
TokenIds = Annotated[list[int], Field(fail_fast=True)]
TokenSequences = Annotated[list[TokenIds], Field(fail_fast=True)]


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class StreamOptions(Strict):
    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


class Generation(Strict):
    """What both endpoints take. `user` names the tenant of fair shares; who sends no `cache_salt`
    shares cached prefixes with all who send none. Other labels of a client have no effect."""

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
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: TokenIds | None = None
    bad_words: TokenSequences | None = None
    min_tokens: int | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    seed: int | None = None
    stop: str | Texts | None = None
    stop_token_ids: TokenIds | None = None
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
        """Raises ParameterError for values out of range."""
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
        """Raises ParameterError for values out of range, HttpError for too many stop strings."""
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if len(stop) > MAX_STOPS:
            raise HttpError(
                400, f"stop holds {len(stop)} strings, at most {MAX_STOPS}", param="stop"
            )
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
        """JSON has no integers for keys."""
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
    """POST /v1/completions."""

    prompt: str | Texts | TokenIds | TokenSequences
    logprobs: int | None = None

    @property
    def prompts(self) -> list[str | list[int]]:
        """Raises HttpError for none or too many."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if not self.prompt:
            raise HttpError(400, "prompt is an empty list", param="prompt")
        token_ids = [one for one in self.prompt if isinstance(one, int)]
        if token_ids:
            return [token_ids]
        prompts = [one for one in self.prompt if not isinstance(one, int)]
        if len(prompts) > MAX_PROMPTS:
            raise HttpError(
                400, f"prompt holds {len(prompts)} prompts, at most {MAX_PROMPTS}", param="prompt"
            )
        return prompts

    def params(self) -> SamplingParams:
        max_tokens = DEFAULT_COMPLETION_TOKENS if self.max_tokens is None else self.max_tokens
        return self.sampling_params(max_tokens=max_tokens, logprobs=self.logprobs)


class TextPart(Strict):
    type: Literal["text"]
    text: str


class Message(Strict):
    """One turn. `developer` is the newer name of `system`."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(fail_fast=True)]

    @model_validator(mode="before")
    @classmethod
    def _drop_no_ops(cls, fields: Any) -> Any:
        return drop_no_ops(fields, MESSAGE_NO_OPS)

    def plain(self) -> dict[str, object]:
        """The message as chat templates know it."""
        parts = self.content
        text = parts if isinstance(parts, str) else "".join(part.text for part in parts)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class ChatRequest(Generation):
    """POST /v1/chat/completions."""

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
    """Raises HttpError 400 that names the first field at fault."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise _as_http_error(error) from error


def drop_no_ops(fields: Any, no_ops: dict[str, tuple[object, ...]]) -> Any:
    """The fields without those that we do not serve but whose value asks for nothing."""
    if not isinstance(fields, dict):
        return fields
    return {
        name: value
        for name, value in fields.items()
        if not any(type(value) is type(one) and value == one for one in no_ops.get(name, ()))
    }


def _as_http_error(error: ValidationError) -> HttpError:
    first = error.errors(include_url=False, include_input=False)[0]
    if not first["loc"]:
        return HttpError(400, "the body must be a JSON object", code="invalid_type")
    field = str(first["loc"][0])
    path = ".".join(map(str, first["loc"]))
    if first["type"] != "extra_forbidden":
        return HttpError(400, f"{path}: {first['msg']}", param=field, code="invalid_value")
    no_ops = NO_OPS | MESSAGE_NO_OPS
    name = str(first["loc"][-1])
    message = f"{path}: this field is not known"
    if name in no_ops:
        message = f"{path}: this field is not supported; leave it out"
    return HttpError(400, message, param=field, code="unsupported_parameter")
