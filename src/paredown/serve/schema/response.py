"""The body of POST /v1/responses. It becomes a chat."""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PrivateAttr, field_validator, model_validator
from pydantic_core import PydanticCustomError

from paredown.serve.schema.chat import ChatRequest
from paredown.serve.schema.generation import Metadata
from paredown.serve.schema.message import Message
from paredown.serve.schema.reasoning import Effort
from paredown.serve.schema.response_items import (
    ItemReference,
    Items,
    KnownItem,
    as_messages,
    resolved,
)
from paredown.serve.schema.strict import Label, Strict, drop_no_ops, parse
from paredown.serve.schema.tools import MAX_TOOLS, FunctionName, FunctionTool, JsonObject

# Fields of the Responses API that we do not serve, each with the values that ask for nothing.
NO_OPS: dict[str, tuple[object, ...]] = {
    "access_programs": (None,),
    "background": (None, False),
    "background_options": (None,),
    "context_management": (None, []),
    "conversation": (None,),
    "image": (None,),
    "include_obfuscation": (None, False),
    "max_tool_calls": (None,),
    "moderation": (None,),
    "personality": (None,),
    "prompt": (None,),
    "stream_options": (None, {}, {"include_obfuscation": False}),
    "top_logprobs": (None, 0),
    "truncation": (None, "disabled"),
}
_TOOL_NO_OPS = ("allowed_callers", "async", "defer_loading", "output_schema")
# What a response may bring beside its items: nothing here has any of it.
_INCLUDABLE = ("reasoning.encrypted_content", "web_search_call.action.sources")


class FlatTool(FunctionTool):
    """A function that the model may call."""

    type: Literal["function"]

    @model_validator(mode="before")
    @classmethod
    def _only_functions(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        if (kind := fields.get("type")) != "function":
            raise PydanticCustomError(
                "other_tool",
                "Only tools of type 'function' are served, not {kind}",
                {"kind": repr(kind)[:64]},
            )
        return drop_no_ops(fields, dict.fromkeys(_TOOL_NO_OPS, (None, False)))

    def nested(self) -> JsonObject:
        """Returns the tool as chats have it."""
        function = self.model_dump(exclude={"type"}, exclude_none=True)
        return {"type": "function", "function": function}


class FlatName(Strict):
    type: Literal["function"]
    name: FunctionName

    def nested(self) -> JsonObject:
        return {"type": "function", "function": {"name": self.name}}


FlatNames = Annotated[list[FlatName], Field(fail_fast=True, min_length=1, max_length=MAX_TOOLS)]


class FlatAllowedTools(Strict):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: FlatNames

    def nested(self) -> JsonObject:
        allowed = {"mode": self.mode, "tools": [one.nested() for one in self.tools]}
        return {"type": "allowed_tools", "allowed_tools": allowed}


class ReasoningSettings(Strict):
    """Reasoning is told as it is, so that no summary is made of it."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class TextFormat(Strict):
    """The form of the answer's text; a schema stands beside its name."""

    type: Literal["text", "json_object", "json_schema"]
    name: Label | None = None
    description: str | None = None
    schema_: JsonObject | None = Field(default=None, alias="schema")
    strict: bool | None = None

    def nested(self) -> JsonObject:
        """Returns the format as chats have it."""
        if self.type != "json_schema":
            return {"type": self.type}
        fields = self.model_dump(exclude={"type"}, exclude_none=True, by_alias=True)
        return {"type": "json_schema", "json_schema": fields}


class TextSettings(Strict):
    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


Included = Annotated[list[Label], Field(fail_fast=True, max_length=16)]
FlatTools = Annotated[list[FlatTool], Field(fail_fast=True, max_length=MAX_TOOLS)]
FlatToolChoice = Literal["none", "auto", "required"] | FlatName | FlatAllowedTools


class PromptOfResponse(Strict):
    """The fields that make a response's prompt."""

    no_ops: ClassVar[Mapping[str, tuple[object, ...]]] = NO_OPS

    model: Label | None = None
    input: str | Items
    instructions: str | None = None
    previous_response_id: Label | None = None
    tools: FlatTools | None = None
    tool_choice: FlatToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningSettings | None = None
    text: TextSettings | None = None
    # None where the input refers to items of stored responses.
    _own_messages: list[Message] | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_no_ops(cls, fields: Any) -> Any:
        return drop_no_ops(fields, cls.no_ops)

    @model_validator(mode="after")
    def _convert(self) -> "PromptOfResponse":
        """Does here what takes time: long bodies are read beside the event loop."""
        if isinstance(self.input, str):
            self._own_messages = [Message(role="user", content=self.input)]
        elif not any(isinstance(one, ItemReference) for one in self.input):
            self._own_messages = as_messages(resolved(self.input, _nothing))
        return self

    def own_messages(self, find: Callable[[str], KnownItem]) -> list[Message]:
        """Returns the messages of the input, without those of the response before it. `find` gives
        the items of stored responses, and raises what it likes."""
        if self._own_messages is not None:
            return self._own_messages
        assert not isinstance(self.input, str)
        return as_messages(resolved(self.input, find))

    def chat(self, messages: Sequence[Message]) -> ChatRequest:
        """Returns the chat that answers it, of these messages behind the instructions. Raises
        HttpError."""
        fields = {
            "messages": _instructed(self.instructions, list(messages)),
            "tools": None if self.tools is None else [one.nested() for one in self.tools],
            "tool_choice": (
                self.tool_choice
                if isinstance(self.tool_choice, str | None)
                else self.tool_choice.nested()
            ),
            "parallel_tool_calls": self.parallel_tool_calls,
            "reasoning_effort": self.reasoning and self.reasoning.effort,
            **self._more_fields(),
        }
        if self.text is not None:
            fields["verbosity"] = self.text.verbosity
            if self.text.format is not None:
                fields["response_format"] = self.text.format.nested()
        return parse(ChatRequest, {name: one for name, one in fields.items() if one is not None})

    def _more_fields(self) -> dict[str, object]:
        return {}


# Fields that have the same meaning in a chat.
_SAME_NAMES = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stream",
    "user",
    "priority",
    "deadline_s",
    "cache_salt",
    "thinking_budget",
    "chat_template_kwargs",
)


class ResponseRequest(PromptOfResponse):
    """The body of POST /v1/responses. Labels of a client have no effect but for `user`, which names
    the tenant, and come back in the response."""

    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    stream: bool | None = None
    store: bool | None = None
    include: Included | None = None
    user: Label | None = None
    priority: int | None = None
    deadline_s: float | None = None
    cache_salt: Label | None = None
    thinking_budget: Annotated[int, Field(ge=0)] | None = None
    chat_template_kwargs: JsonObject | None = None
    metadata: Metadata | None = None
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None
    prompt_cache_options: dict[Label, Label] | None = None
    prompt_cache_retention: Label | None = None
    service_tier: Label | None = None
    _shown_items: list[tuple[str, str]] = PrivateAttr(default_factory=list)

    @field_validator("include", mode="after")
    @classmethod
    def _check_included(cls, names: list[str] | None) -> list[str] | None:
        if any(name not in _INCLUDABLE for name in names or ()):
            raise PydanticCustomError(
                "not_included", "It takes {known} alone", {"known": " and ".join(_INCLUDABLE)}
            )
        return names

    @property
    def is_stored(self) -> bool:
        return self.store is not False

    def _more_fields(self) -> dict[str, object]:
        same = {name: getattr(self, name) for name in _SAME_NAMES}
        return {**same, "max_completion_tokens": self.max_output_tokens}

    @model_validator(mode="after")
    def _write_items(self) -> "ResponseRequest":
        if self.is_stored:
            self._shown_items = self._written_items()
        return self

    @property
    def shown_items(self) -> list[tuple[str, str]]:
        """Returns the items of a stored response's input as they are listed, each with its id and
        as JSON."""
        return self._shown_items

    def _written_items(self) -> list[tuple[str, str]]:
        if isinstance(self.input, str):
            part = {"type": "input_text", "text": self.input}
            shown: list[JsonObject] = [{"type": "message", "role": "user", "content": [part]}]
        else:
            shown = [one.model_dump(exclude_none=True) for one in self.input]
        told = [{"id": f"item_{secrets.token_hex(16)}", **one} for one in shown]
        return [(str(one["id"]), json.dumps(one, ensure_ascii=False)) for one in told]

    def settings(self, model_name: str) -> dict[str, object]:
        """Returns the fields that the response repeats."""
        shown = self.model_dump(
            include={"tools", "tool_choice", "reasoning", "text"}, by_alias=True, exclude_none=True
        )
        return {
            "model": model_name,
            "instructions": self.instructions,
            "previous_response_id": self.previous_response_id,
            "max_output_tokens": self.max_output_tokens,
            "temperature": 1.0 if self.temperature is None else self.temperature,
            "top_p": 1.0 if self.top_p is None else self.top_p,
            "tools": shown.get("tools", []),
            "tool_choice": shown.get("tool_choice", "auto"),
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "reasoning": {"effort": None, "summary": None, **shown.get("reasoning", {})},
            "text": {"format": {"type": "text"}, **shown.get("text", {})},
            "truncation": "disabled",
            "background": False,
            "store": self.is_stored,
            "metadata": self.metadata or {},
            "user": self.user,
            "service_tier": "default",
        }


def read_response(body: object) -> ResponseRequest:
    """Returns the request. Raises HttpError."""
    return parse(ResponseRequest, body)


def read_prompt_of_response(body: object) -> PromptOfResponse:
    """Returns the prompt whose tokens are counted. Raises HttpError."""
    return parse(PromptOfResponse, body)


def _nothing(item_id: str) -> KnownItem:
    raise AssertionError(item_id)


def _instructed(instructions: str | None, messages: list[Message]) -> list[Message]:
    """Returns the messages after a system message with the instructions; one that stands there
    already comes after them, since most templates take one alone."""
    if instructions is None:
        return messages
    if messages and messages[0].role in ("system", "developer"):
        text = f"{instructions}\n\n{messages[0].text}"
        return [Message(role="system", content=text), *messages[1:]]
    return [Message(role="system", content=instructions), *messages]
