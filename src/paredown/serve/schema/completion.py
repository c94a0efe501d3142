"""The body of POST /v1/completions."""

from typing import Any, cast

from pydantic import field_validator

from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.serve.errors import HttpError
from paredown.serve.schema.generation import Generation
from paredown.serve.schema.strict import Texts, TokenIds, TokenSequences, parse

MAX_PROMPTS = 64
DEFAULT_COMPLETION_TOKENS = 16


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


def read_completion(body: object) -> tuple[CompletionRequest, SamplingParams]:
    """Returns the request and how its tokens are drawn. Raises HttpError and ParameterError."""
    asked = parse(CompletionRequest, body)
    return asked, asked.params()
