"""A turn of a conversation, as clients send it."""

from sys import getsizeof
from typing import Annotated, Any, Literal

import pydantic_core
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from paredown.serve.schema.strict import MESSAGE_NO_OPS, Label, Strict, drop_no_ops

MAX_MESSAGES = 4096
MAX_PARTS = 4096
MAX_CALLS = 128
# A template takes as long for a message as for so many characters of a text.
MESSAGE_CHARS = 32
# Parts of other kinds, and what they are.
_OTHER_PARTS = {
    "image": "an image",
    "image_url": "an image",
    "input_image": "an image",
    "document": "a document",
    "input_file": "a file",
    "input_audio": "audio",
    "audio_url": "audio",
    "video_url": "a video",
    "file": "a file",
}
# What marks a part for another server's cache, or is left of that server's answer.
_PART_NO_OPS = ("annotations", "cache_control", "logprobs", "prompt_cache_breakpoint")


def only_text(fields: Any) -> Any:
    """Says of an image that it is one, not which of its fields are unknown. Returns other parts
    without what has no effect."""
    if not isinstance(fields, dict):
        return fields
    kind = fields.get("type")
    if isinstance(kind, str) and kind in _OTHER_PARTS:
        raise PydanticCustomError(
            "other_part", "It is {kind}, only text parts are served", {"kind": _OTHER_PARTS[kind]}
        )
    return {name: value for name, value in fields.items() if name not in _PART_NO_OPS}


class _Part(Strict):
    @model_validator(mode="before")
    @classmethod
    def _only_text(cls, fields: Any) -> Any:
        return only_text(fields)


class TextPart(_Part):
    type: Literal["text"]
    text: str


class RefusalPart(_Part):
    """Where an assistant refused."""

    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


class CalledFunction(Strict):
    """`arguments` is JSON text, as the model wrote it."""

    name: Label
    arguments: str

    def for_template(self, *, as_text: bool) -> dict[str, object]:
        """Returns the call with its arguments as the object that most templates read, or
        `as_text`. Text that is no JSON object stays text."""
        arguments: object = self.arguments
        if not as_text:
            try:
                parsed = pydantic_core.from_json(self.arguments or "{}", allow_inf_nan=False)
            except ValueError:
                parsed = None
            arguments = parsed if isinstance(parsed, dict) else self.arguments
        return {"name": self.name, "arguments": arguments}


class ToolCall(Strict):
    """A call of a function in an assistant's turn. Clients repeat `index` from a stream's
    deltas."""

    id: Label
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None

    def for_template(self, *, as_text: bool) -> dict[str, object]:
        function = self.function.for_template(as_text=as_text)
        return {"id": self.id, "type": "function", "function": function}


Parts = Annotated[list[TextPart | RefusalPart], Field(fail_fast=True, max_length=MAX_PARTS)]
Calls = Annotated[list[ToolCall], Field(fail_fast=True, max_length=MAX_CALLS)]


class Message(Strict):
    """One turn. `developer` is the newer name of `system`. An assistant's turn may have reasoning,
    under any of the three names that clients use, and calls in place of content."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Parts | None = None
    name: Label | None = None
    tool_calls: Calls | None = None
    tool_call_id: Label | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking: str | None = None
    refusal: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_no_ops(cls, fields: Any) -> Any:
        return drop_no_ops(fields, MESSAGE_NO_OPS)

    @model_validator(mode="after")
    def _check_role(self) -> "Message":
        if self.role == "assistant":
            # An assistant may even have said nothing at all, and clients send that back.
            return self
        if self.content is None:
            raise PydanticCustomError(
                "no_content", "A message of the role {role} needs content", {"role": self.role}
            )
        for name in ("tool_calls", "reasoning_content", "reasoning", "thinking", "refusal"):
            if getattr(self, name) is not None:
                raise PydanticCustomError(
                    "wrong_role", "Only an assistant's message has {name}", {"name": name}
                )
        if (self.role == "tool") != (self.tool_call_id is not None):
            raise PydanticCustomError(
                "wrong_role", "tool_call_id belongs to messages of the role tool, and only to them"
            )
        return self

    @property
    def text(self) -> str:
        """Returns the content, or else what the assistant said on refusing."""
        parts = self.refusal or "" if self.content is None else self.content
        return parts if isinstance(parts, str) else "".join(part.text for part in parts)

    @property
    def num_chars(self) -> int:
        """Returns about how long it takes to render."""
        reasoning = self.reasoning_content or self.reasoning or self.thinking or ""
        arguments = sum(len(one.function.arguments) for one in self.tool_calls or ())
        return MESSAGE_CHARS + len(self.text) + len(reasoning) + arguments

    @property
    def num_bytes(self) -> int:
        """Returns the memory of its texts."""
        texts = [self.text, self.reasoning_content, self.reasoning, self.thinking, self.name]
        texts += [one.function.arguments for one in self.tool_calls or ()]
        return sum(getsizeof(text) for text in texts if text is not None)

    def for_template(self, *, arguments_as_text: bool = False) -> dict[str, object]:
        """Returns the message in the form that chat templates expect. Without content it has an
        empty one: some templates join it to other text."""
        found: dict[str, object] = {
            "role": "system" if self.role == "developer" else self.role,
            "content": self.text,
        }
        for name in ("name", "tool_call_id"):
            if (value := getattr(self, name)) is not None:
                found[name] = value
        reasoning = self.reasoning_content or self.reasoning or self.thinking
        if reasoning:
            found["reasoning_content"] = reasoning
        if self.tool_calls:
            found["tool_calls"] = [
                one.for_template(as_text=arguments_as_text) for one in self.tool_calls
            ]
        return found
