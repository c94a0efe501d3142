"""The answers of /v1/responses."""

from typing import Literal

from pydantic import BaseModel


class ResponseUsage(BaseModel):
    input_tokens: int
    output_tokens: int
    total_tokens: int


class OutputItemBody(BaseModel):
    """A message, reasoning, or a call of a function; each has fields of its own."""

    id: str
    type: Literal["message", "reasoning", "function_call"]
    status: Literal["in_progress", "completed", "incomplete"]


class ResponseBody(BaseModel):
    """It repeats the fields of the request, too."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    model: str
    output: list[OutputItemBody]
    usage: ResponseUsage | None


class ResponseEvent(BaseModel):
    """An event of a stream; `type` says which further fields it has."""

    type: str
    sequence_number: int


class InputTokens(BaseModel):
    object: Literal["response.input_tokens"]
    input_tokens: int


class DeletedResponse(BaseModel):
    id: str
    object: Literal["response"]
    deleted: Literal[True]


class InputItem(BaseModel):
    id: str


class InputItems(BaseModel):
    object: Literal["list"]
    data: list[InputItem]
    first_id: str | None
    last_id: str | None
    has_more: bool
