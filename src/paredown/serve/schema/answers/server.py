"""Answers about the server itself: its models, its state, its version, its errors."""

from typing import Literal

from pydantic import BaseModel


class Model(BaseModel):
    """A name that the server answers to. `max_model_len` is the context in tokens."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int


class ModelList(BaseModel):
    object: Literal["list"]
    data: list[Model]


class Health(BaseModel):
    """Whether requests are answered."""

    status: Literal["ready", "loading", "stalled", "draining", "stopped", "dead"]


class Version(BaseModel):
    version: str


class Report(BaseModel):
    """The model and what it does; further fields say how it runs and what its compression cost."""

    model: str
    max_tokens: int
    task: Literal["generate", "embed"]


class OpenApiDocument(BaseModel):
    """An OpenAPI document."""

    openapi: str
    info: dict[str, object]
    paths: dict[str, object]
    components: dict[str, object]


class ErrorDetail(BaseModel):
    """`param` names the field at fault, `code` the kind of fault."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(BaseModel):
    """Any answer that is not 200."""

    error: ErrorDetail
