"""The answer of /v1/completions; a piece of a stream has the same form."""

from typing import Literal

from pydantic import BaseModel

from paredown.serve.schema.answers.usage import Timings, Usage

FinishReason = Literal["stop", "length"]


class CompletionLogprobs(BaseModel):
    """One entry for each token. `text_offset` counts the characters before it."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class RankedLogprob(BaseModel):
    """`rank` is null for a token that is none of the likeliest."""

    logprob: float
    rank: int | None
    decoded_token: str


class CompletionChoice(BaseModel):
    """The last three fields come where they were asked for. `prompt_logprobs` has an object from
    token ids for each token of the prompt; for the first it is null."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None
    prompt_logprobs: list[dict[str, RankedLogprob] | None] | None = None
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None


class Completion(BaseModel):
    """`usage` comes with whole answers, and with the last piece of a stream that asks for it."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None
    timings: Timings | None = None
