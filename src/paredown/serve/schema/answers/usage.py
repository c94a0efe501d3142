"""Counts and times that come with an answer."""

from pydantic import BaseModel


class PromptTokensDetails(BaseModel):
    cached_tokens: int


class CompletionTokensDetails(BaseModel):
    """Draft tokens are there where the server speculates."""

    reasoning_tokens: int
    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


class Usage(BaseModel):
    """Counts of tokens; each prompt counts once, however many answers it has. Cached tokens are
    there where they tell nobody what others asked."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    completion_tokens_details: CompletionTokensDetails
    prompt_tokens_details: PromptTokensDetails | None = None


class Timings(BaseModel):
    """Times of prompt and answer, where they were asked for, as llama.cpp has them."""

    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    cache_n: int | None = None
    queue_ms: float | None = None
    draft_n: int | None = None
    draft_n_accepted: int | None = None
