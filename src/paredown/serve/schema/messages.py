"""The body of POST /v1/messages. It becomes a chat."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from paredown.serve.errors import HttpError
from paredown.serve.schema.chat import ChatRequest
from paredown.serve.schema.generation import MAX_STOPS
from paredown.serve.schema.message import Message
from paredown.serve.schema.message_blocks import BlockMessages, TextBlocks, with_joined_users
from paredown.serve.schema.strict import Label, Strict, drop_no_ops, parse
from paredown.serve.schema.tools import MAX_TOOLS, FunctionName, JsonObject

# Fields of the Messages API that we do not serve, each with the values that ask for nothing.
NO_OPS: dict[str, tuple[object, ...]] = {
    "container": (None,),
    "diagnostics": (None,),
    "inference_geo": (None,),
    "mcp_servers": (None, []),
    "prefill": (None,),
    "speed": (None, "standard"),
}
MAX_EDITS = 16
_TOOL_NO_OPS: dict[str, tuple[object, ...]] = {
    "allowed_callers": (None, ["direct"]),
    "defer_loading": (None, False),
    "eager_input_streaming": (None, True, False),
    "input_examples": (None, []),
}


class MessageTool(Strict):
    """A tool that the client runs; `input_schema` is the JSON schema of its input."""

    type: Literal["custom"] | None = None
    name: FunctionName
    description: str | None = None
    input_schema: JsonObject
    strict: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _only_custom(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        if (kind := fields.get("type")) not in (None, "custom"):
            raise PydanticCustomError(
                "other_tool",
                "Only tools of the client are served, not those of type {kind}",
                {"kind": repr(kind)[:64]},
            )
        fields = {name: value for name, value in fields.items() if name != "cache_control"}
        return drop_no_ops(fields, _TOOL_NO_OPS)

    def nested(self) -> JsonObject:
        """Returns the tool as chats have it."""
        function: JsonObject = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        return {"type": "function", "function": {**function, "parameters": self.input_schema}}


class MessageToolChoice(Strict):
    """`any` tool, one by its `name`, none, or as the model likes."""

    type: Literal["auto", "any", "tool", "none"]
    name: FunctionName | None = None
    disable_parallel_tool_use: bool | None = None

    def nested(self) -> str | JsonObject:
        if self.type == "tool":
            return {"type": "function", "function": {"name": self.name}}
        return {"auto": "auto", "any": "required", "none": "none"}[self.type]

    @model_validator(mode="after")
    def _check_name(self) -> "MessageToolChoice":
        if (self.type == "tool") != (self.name is not None):
            raise PydanticCustomError(
                "wrong_name", "A name belongs to the type tool, and to no other"
            )
        return self


class Thinking(Strict):
    """Whether the model reasons first, and in how many tokens at most."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[int, Field(ge=0)] | None = None
    display: Literal["summarized", "omitted"] | None = None


class MessageFormat(Strict):
    """The form of the answer's text."""

    type: Literal["json_schema"]
    schema_: JsonObject = Field(alias="schema")

    def nested(self) -> JsonObject:
        json_schema = {"name": "answer", "schema": self.schema_, "strict": True}
        return {"type": "json_schema", "json_schema": json_schema}


class OutputConfig(Strict):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: MessageFormat | None = None


class ContextEdit(Strict):
    """Parts of a long conversation that the API leaves out by itself. Nothing is left out here."""

    model_config = ConfigDict(strict=True, extra="allow")

    type: Literal["clear_thinking_20251015", "clear_tool_uses_20250919"]


class ContextManagement(Strict):
    edits: Annotated[list[ContextEdit], Field(fail_fast=True, max_length=MAX_EDITS)] | None = None


class MessageMetadata(Strict):
    user_id: Label | None = None


Stops = Annotated[list[str], Field(fail_fast=True, max_length=MAX_STOPS)]
MessageTools = Annotated[list[MessageTool], Field(fail_fast=True, max_length=MAX_TOOLS)]


class PromptOfMessage(Strict):
    """The fields that make a message's prompt."""

    no_ops: ClassVar[Mapping[str, tuple[object, ...]]] = NO_OPS

    model: Label | None = None
    messages: BlockMessages
    system: str | TextBlocks | None = None
    tools: MessageTools | None = None
    tool_choice: MessageToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    context_management: ContextManagement | None = None
    _chat_messages: list[Message] = PrivateAttr(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _drop_no_ops(cls, fields: Any) -> Any:
        if isinstance(fields, dict):
            fields = {name: value for name, value in fields.items() if name != "cache_control"}
        return drop_no_ops(fields, cls.no_ops)

    def chat(self) -> ChatRequest:
        """Returns the chat that answers it. Raises HttpError."""
        if self.messages[-1].role == "assistant":
            raise HttpError(
                400,
                "messages end with the assistant's turn: an answer that begins with given words is "
                "not served; end with the user's",
                param="messages",
                code="unsupported_parameter",
            )
        fields: dict[str, object] = {
            "messages": self._chat_messages,
            "tools": None if not self.tools else [one.nested() for one in self.tools],
            **self._reasoning(),
            **self._more_fields(),
        }
        if (choice := self.tool_choice) is not None:
            fields["tool_choice"] = choice.nested()
            fields["parallel_tool_calls"] = not choice.disable_parallel_tool_use
        if self.output_config is not None and self.output_config.format is not None:
            fields["response_format"] = self.output_config.format.nested()
        return parse(ChatRequest, {name: one for name, one in fields.items() if one is not None})

    @model_validator(mode="after")
    def _convert(self) -> "PromptOfMessage":
        """Does here what takes time: long bodies are read beside the event loop."""
        self._chat_messages = self._messages()
        return self

    def _messages(self) -> list[Message]:
        """Returns the conversation as messages of a chat."""
        messages = with_joined_users([made for one in self.messages for made in one.messages()])
        if self.system is None:
            return messages
        text = (
            self.system
            if isinstance(self.system, str)
            else "\n\n".join(block.text for block in self.system)
        )
        return [Message(role="system", content=text), *messages]

    def _reasoning(self) -> dict[str, object]:
        """Returns how much the model reasons; without `thinking` that is the template's choice."""
        effort = None if self.output_config is None else self.output_config.effort
        thinking = self.thinking
        if thinking is None or thinking.type == "adaptive":
            return {"reasoning_effort": effort}
        if thinking.type == "disabled":
            return {"reasoning_effort": "none"}
        return {
            "reasoning_effort": effort or "medium",
            "thinking_budget": thinking.budget_tokens,
        }

    def _more_fields(self) -> dict[str, object]:
        return {}


class MessageRequest(PromptOfMessage):
    """The body of POST /v1/messages. `metadata.user_id` names the tenant."""

    max_tokens: Annotated[int, Field(ge=1)]
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: Stops | None = None
    stream: bool | None = None
    metadata: MessageMetadata | None = None
    service_tier: Label | None = None

    def _more_fields(self) -> dict[str, object]:
        return {
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "stop": self.stop_sequences,
            "user": self.metadata and self.metadata.user_id,
        }


def read_message(body: object) -> MessageRequest:
    """Returns the request. Raises HttpError."""
    return parse(MessageRequest, body)


def read_prompt_of_message(body: object) -> PromptOfMessage:
    """Returns the prompt whose tokens are counted. Raises HttpError."""
    return parse(PromptOfMessage, body)
