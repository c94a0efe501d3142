"""The answer of /v1/chat/completions, and the pieces of a stream."""

from typing import Literal

from pydantic import BaseModel

from paredown.serve.schema.answers.usage import Timings, Usage

FinishReason = Literal["stop", "length", "tool_calls"]


class TokenLogprob(BaseModel):
    """`bytes` are the token's own; "token" has U+FFFD for a character that they cut."""

    token: str
    logprob: float
    bytes: list[int] | None


class ChosenLogprob(TokenLogprob):
    top_logprobs: list[TokenLogprob]


class ChatLogprobs(BaseModel):
    content: list[ChosenLogprob] | None
    refusal: None


class CalledFunctionBody(BaseModel):
    """`arguments` is JSON text."""

    name: str
    arguments: str


class ToolCallBody(BaseModel):
    id: str
    type: Literal["function"]
    function: CalledFunctionBody


class AnswerMessage(BaseModel):
    """Reasoning stands under both names that clients read."""

    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCallBody] | None = None


class ChatChoice(BaseModel):
    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None


class ChatCompletion(BaseModel):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    timings: Timings | None = None


class FunctionDelta(BaseModel):
    name: str | None = None
    arguments: str


class ToolCallDelta(BaseModel):
    """A piece of the call number `index`; the first one has its id and name."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionDelta


class Delta(BaseModel):
    """The fields that a piece adds to; a field left out adds nothing."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCallDelta] | None = None


class ChunkChoice(BaseModel):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None


class ChatCompletionChunk(BaseModel):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | None = None
    timings: Timings | None = None
