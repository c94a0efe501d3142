"""The messages of the Messages API: lists of blocks, which become messages of a chat."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from paredown.serve.schema.message import (
    MAX_MESSAGES,
    MAX_PARTS,
    CalledFunction,
    Message,
    ToolCall,
    only_text,
)
from paredown.serve.schema.strict import Label, Strict
from paredown.serve.schema.tools import JsonObject

_KINDS = ("text", "tool_use", "tool_result", "thinking", "redacted_thinking")
# What marks blocks for the API's own cache and tools.
_NO_OPS = ("cache_control", "caller", "citations", "toolset_name")


class _Block(Strict):
    @model_validator(mode="before")
    @classmethod
    def _drop_marks(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        return {name: value for name, value in fields.items() if name not in _NO_OPS}


class TextBlock(_Block):
    type: Literal["text"]
    text: str

    @model_validator(mode="before")
    @classmethod
    def _only_text(cls, fields: Any) -> Any:
        return only_text(fields)


TextBlocks = Annotated[list[TextBlock], Field(fail_fast=True, max_length=MAX_PARTS)]


class ToolUseBlock(_Block):
    type: Literal["tool_use"]
    id: Label
    name: Label
    input: JsonObject


class ToolResultBlock(_Block):
    type: Literal["tool_result"]
    tool_use_id: Label
    content: str | TextBlocks | None = None
    is_error: bool | None = None


class ThinkingBlock(_Block):
    """Signatures are the API's own; nothing is proved with them here."""

    type: Literal["thinking"]
    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(_Block):
    """Reasoning that only the API itself can read; it is left out."""

    type: Literal["redacted_thinking"]
    data: str


def _known_kind(block: Any) -> Any:
    """Says of a block of another kind what it is, in place of every field that it lacks."""
    block = only_text(block)
    if isinstance(block, dict) and block.get("type") not in _KINDS:
        raise PydanticCustomError(
            "other_block",
            "Blocks of type {kind} are not served, only {known}",
            {"kind": repr(block.get("type"))[:64], "known": ", ".join(_KINDS)},
        )
    return block


def _kind(block: Any) -> Any:
    return block.get("type") if isinstance(block, dict) else getattr(block, "type", "text")


AnyBlock = (
    Annotated[TextBlock, Tag("text")]
    | Annotated[ToolUseBlock, Tag("tool_use")]
    | Annotated[ToolResultBlock, Tag("tool_result")]
    | Annotated[ThinkingBlock, Tag("thinking")]
    | Annotated[RedactedThinkingBlock, Tag("redacted_thinking")]
)
Blocks = Annotated[
    list[Annotated[AnyBlock, Discriminator(_kind), BeforeValidator(_known_kind)]],
    Field(fail_fast=True, max_length=MAX_PARTS),
]


class BlockMessage(Strict):
    """A turn of the user, with results of tools, or of the assistant, with calls and reasoning; or
    a word of the system between them."""

    role: Literal["user", "assistant", "system"]
    content: str | Blocks

    @model_validator(mode="after")
    def _check_role(self) -> "BlockMessage":
        wrong: tuple[str, ...] = ("tool_use", "thinking", "redacted_thinking")
        if self.role == "assistant":
            wrong = ("tool_result",)
        elif self.role == "system":
            wrong += ("tool_result",)
        for number, block in enumerate(self.blocks):
            if block.type in wrong:
                raise PydanticCustomError(
                    "wrong_role",
                    "content.{number}: a block of type {kind} does not belong to the role {role}",
                    {"number": number, "kind": block.type, "role": self.role},
                )
        return self

    @property
    def blocks(self) -> list[Any]:
        return [] if isinstance(self.content, str) else self.content

    def messages(self) -> list[Message]:
        """Returns the turn as messages of a chat: each result of a tool is one of its own."""
        if isinstance(self.content, str):
            return [Message(role=self.role, content=self.content)]
        if self.role == "system":
            return [Message(role="system", content="".join(one.text for one in self.blocks))]
        return self._of_assistant() if self.role == "assistant" else self._of_user()

    def _of_assistant(self) -> list[Message]:
        calls = [
            ToolCall(
                id=one.id,
                type="function",
                function=CalledFunction(
                    name=one.name, arguments=json.dumps(one.input, ensure_ascii=False)
                ),
            )
            for one in self.blocks
            if isinstance(one, ToolUseBlock)
        ]
        thoughts = "".join(one.thinking for one in self.blocks if isinstance(one, ThinkingBlock))
        texts = "".join(one.text for one in self.blocks if isinstance(one, TextBlock))
        made = Message(
            role="assistant",
            content=texts,
            reasoning_content=thoughts or None,
            tool_calls=calls or None,
        )
        return [made]

    def _of_user(self) -> list[Message]:
        made: list[Message] = []
        for block in self.blocks:
            if isinstance(block, ToolResultBlock):
                text = _result_text(block)
                made.append(Message(role="tool", content=text, tool_call_id=block.tool_use_id))
            else:
                made.append(Message(role="user", content=block.text))
        return made


BlockMessages = Annotated[
    list[BlockMessage], Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES)
]


def with_joined_users(messages: Sequence[Message]) -> list[Message]:
    """Returns the messages with neighbours of the user as one, each text on lines of its own: the
    API has turns of several blocks, and templates want roles that take turns."""
    made: list[Message] = []
    for message in messages:
        if made and made[-1].role == message.role == "user":
            made[-1] = Message(role="user", content=f"{made[-1].text}\n{message.text}")
        else:
            made.append(message)
    return made


def _result_text(block: ToolResultBlock) -> str:
    content = block.content or ""
    text = content if isinstance(content, str) else "".join(part.text for part in content)
    return f"Error: {text}" if block.is_error else text
