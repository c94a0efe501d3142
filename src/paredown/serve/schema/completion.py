"""The body of POST /v1/completions."""

from typing import Any, cast

from pydantic import field_validator

from paredown.engine.sampling.sampling_defaults import SamplingDefaults
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.serve.errors import HttpError
from paredown.serve.schema.generation import Generation
from paredown.serve.schema.strict import Texts, TokenIds, TokenSequences, parse

MAX_PROMPTS = 64
DEFAULT_COMPLETION_TOKENS = 16


class CompletionRequest(Generation):
    """The body of POST /v1/completions. `max_tokens` 0 reads the prompts, and scores them with
    `echo` and `logprobs`. `suffix` is the text after the answer."""

    prompt: str | Texts | TokenIds | TokenSequences
    suffix: str | None = None
    echo: bool | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    add_special_tokens: bool | None = None
    return_token_ids: bool | None = None

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

    def params(self, defaults: SamplingDefaults) -> SamplingParams:
        """Returns how tokens are drawn. Raises ParameterError, and HttpError for what does not go
        together."""
        if self.prompt_logprobs is not None and self.stream:
            raise HttpError(
                400,
                "prompt_logprobs has no place in a stream; use echo and logprobs, or stream false",
                param="prompt_logprobs",
            )
        if self.suffix and self.echo:
            raise HttpError(400, "suffix and echo do not go together; leave out one", param="echo")
        if self.suffix and not all(isinstance(prompt, str) for prompt in self.prompts):
            raise HttpError(
                400, "suffix needs a prompt that is text, not token ids", param="suffix"
            )
        max_tokens = self.max_tokens
        if max_tokens is None:
            max_tokens = defaults.max_tokens or DEFAULT_COMPLETION_TOKENS
        of_prompt = [self.prompt_logprobs] if self.prompt_logprobs is not None else []
        if self.echo and self.logprobs is not None:
            of_prompt.append(self.logprobs)
        return self.sampling_params(
            defaults,
            max_tokens=max_tokens,
            logprobs=self.logprobs,
            prompt_logprobs=max(of_prompt, default=None),
        )


def read_completion(
    defaults: SamplingDefaults, body: object
) -> tuple[CompletionRequest, SamplingParams]:
    """Returns the request and how its tokens are drawn. Raises HttpError and ParameterError."""
    asked = parse(CompletionRequest, body)
    return asked, asked.params(defaults)
