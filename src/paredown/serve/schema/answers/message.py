"""The answers of /v1/messages."""

from typing import Literal

from pydantic import BaseModel


class MessageUsage(BaseModel):
    input_tokens: int
    output_tokens: int


class ContentBlock(BaseModel):
    """Text, thinking, or a call of a tool; each has fields of its own."""

    type: Literal["text", "thinking", "tool_use"]


class MessageBody(BaseModel):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[ContentBlock]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"] | None
    stop_sequence: str | None
    usage: MessageUsage


class MessageEvent(BaseModel):
    """An event of a stream; `type` says which further fields it has."""

    type: str


class MessageTokens(BaseModel):
    input_tokens: int


class MessageErrorDetail(BaseModel):
    type: str
    message: str


class MessageErrorAnswer(BaseModel):
    """Any answer that is not 200, as the Messages API tells it."""

    type: Literal["error"]
    error: MessageErrorDetail
