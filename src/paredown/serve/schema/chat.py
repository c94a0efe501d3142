"""The body of POST /v1/chat/completions."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from paredown.engine.sampling.sampling_defaults import SamplingDefaults
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.serve.errors import HttpError
from paredown.serve.schema.generation import Generation
from paredown.serve.schema.message import MAX_MESSAGES, Message
from paredown.serve.schema.reasoning import MAX_VALUES, Effort, Value, template_values
from paredown.serve.schema.strict import NO_OPS, Label, parse
from paredown.serve.schema.tools import ToolChoice, Tools, ToolUse, tool_use

# Fields of chats that completions do not have.
_SERVED = ("parallel_tool_calls", "reasoning_effort", "tool_choice", "tools", "verbosity")
# Fields of completions that some clients send with chats too, and what asks for nothing.
_OF_COMPLETIONS = {"echo": (None, False), "suffix": (None, "")}


class ChatRequest(Generation):
    """The body of POST /v1/chat/completions. A chat without tools may be given an empty list.
    `thinking_budget` is the most tokens of reasoning before the answer."""

    no_ops: ClassVar[Mapping[str, tuple[object, ...]]] = {
        **{name: values for name, values in NO_OPS.items() if name not in _SERVED},
        **_OF_COMPLETIONS,
    }

    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Effort | None = None
    thinking_budget: Annotated[int, Field(ge=0)] | None = None
    chat_template_kwargs: Annotated[dict[Label, Value], Field(max_length=MAX_VALUES)] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    prompt_cache_options: dict[Label, Label] | None = None

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

    @property
    def num_chars(self) -> int:
        """Returns about how long the conversation takes to render."""
        tools = sum(len(str(one.given)) for one in self.tools or ())
        return tools + sum(message.num_chars for message in self.messages)

    def tool_use(self) -> ToolUse | None:
        """Returns how tools are used; raises HttpError where that contradicts itself."""
        return tool_use(self.tools, self.tool_choice, self.parallel_tool_calls)

    def template_values(self) -> dict[str, object]:
        """Returns the values for the chat template; raises HttpError for one that is not
        allowed."""
        return template_values(self.reasoning_effort, self.chat_template_kwargs or {})


def read_chat(defaults: SamplingDefaults, body: object) -> tuple[ChatRequest, SamplingParams]:
    """Returns the request and how its tokens are drawn. Raises HttpError and ParameterError."""
    asked = parse(ChatRequest, body)
    return asked, asked.params(defaults)
