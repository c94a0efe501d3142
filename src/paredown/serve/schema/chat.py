"""The body of POST /v1/chat/completions."""

from typing import Annotated

from pydantic import Field

from paredown.engine.sampling.sampling_defaults import SamplingDefaults
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.serve.errors import HttpError
from paredown.serve.schema.generation import Generation
from paredown.serve.schema.message import MAX_MESSAGES, Message
from paredown.serve.schema.strict import parse


class ChatRequest(Generation):
    """The body of POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None

    def params(self, defaults: SamplingDefaults) -> SamplingParams:
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise HttpError(
                400, "give max_completion_tokens or max_tokens, not both", param="max_tokens"
            )
        if self.top_logprobs is not None and not self.logprobs:
            raise HttpError(400, "top_logprobs needs logprobs to be true", param="top_logprobs")
        given = (self.max_completion_tokens, self.max_tokens, defaults.max_tokens)
        return self.sampling_params(
            defaults,
            max_tokens=next((one for one in given if one is not None), None),
            logprobs=(self.top_logprobs or 0) if self.logprobs else None,
        )


def read_chat(defaults: SamplingDefaults, body: object) -> tuple[ChatRequest, SamplingParams]:
    """Returns the request and how its tokens are drawn. Raises HttpError and ParameterError."""
    asked = parse(ChatRequest, body)
    return asked, asked.params(defaults)
