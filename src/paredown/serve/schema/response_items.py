"""The items that a response is asked with: messages, calls with their results, reasoning."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from paredown.serve.schema.message import CalledFunction, Message, ToolCall, only_text
from paredown.serve.schema.strict import Label, Strict, drop_no_ops

MAX_ITEMS = 4096
MAX_PARTS = 4096
Status = Literal["in_progress", "completed", "incomplete"]
# Fields of parts and items that ask for nothing.
_NO_OPS: dict[str, tuple[object, ...]] = {
    "caller": (None, {"type": "direct"}),
    "created_by": (None,),
    "namespace": (None,),
    "phase": (None, "commentary", "final_answer"),
}


class _Item(Strict):
    id: Label | None = None
    status: Status | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_no_ops(cls, fields: Any) -> Any:
        return drop_no_ops(fields, _NO_OPS)


class ItemText(Strict):
    """A part of a message."""

    type: Literal["input_text", "output_text", "text"]
    text: str

    @model_validator(mode="before")
    @classmethod
    def _only_text(cls, fields: Any) -> Any:
        return only_text(fields)


class ItemRefusal(Strict):
    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


ItemParts = Annotated[list[ItemText | ItemRefusal], Field(fail_fast=True, max_length=MAX_PARTS)]


class MessageItem(_Item):
    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | ItemParts


class FunctionCallItem(_Item):
    type: Literal["function_call"]
    call_id: Label
    name: Label
    arguments: str


class FunctionCallOutputItem(_Item):
    type: Literal["function_call_output"]
    call_id: Label
    output: str | ItemParts
    name: Label | None = None


class SummaryText(Strict):
    type: Literal["summary_text"]
    text: str


class ReasoningText(Strict):
    type: Literal["reasoning_text", "text"]
    text: str


class ReasoningItem(_Item):
    """Reasoning of an earlier turn. Models read the content, or else the summary; what is encrypted
    is another server's."""

    type: Literal["reasoning"]
    summary: Annotated[list[SummaryText], Field(fail_fast=True, max_length=MAX_PARTS)] | None = None
    content: Annotated[list[ReasoningText], Field(fail_fast=True, max_length=MAX_PARTS)] | None = (
        None
    )
    encrypted_content: str | None = None

    @property
    def text(self) -> str:
        return "".join(one.text for one in self.content or self.summary or ())


class ItemReference(Strict):
    """Stands for an item of a stored response; its type may be left out."""

    type: Literal["item_reference"] | None = "item_reference"
    id: Label


_KINDS = ("message", "function_call", "function_call_output", "reasoning", "item_reference")


def _kind(item: Any) -> Any:
    if not isinstance(item, dict):
        return getattr(item, "type", "message")
    is_bare = item.get("type") is None and "id" in item and "role" not in item
    return "item_reference" if is_bare else item.get("type", "message")


def _known_kind(item: Any) -> Any:
    """Says of an item of another kind what it is, in place of every field that it lacks."""
    if isinstance(item, dict) and (kind := _kind(item)) not in _KINDS:
        raise PydanticCustomError(
            "other_item",
            "Items of type {kind} are not served, only {known}",
            {"kind": repr(kind)[:64], "known": ", ".join(_KINDS)},
        )
    return item


KnownItem = MessageItem | FunctionCallItem | FunctionCallOutputItem | ReasoningItem
Item = (
    Annotated[MessageItem, Tag("message")]
    | Annotated[FunctionCallItem, Tag("function_call")]
    | Annotated[FunctionCallOutputItem, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Annotated[ItemReference, Tag("item_reference")]
)
Items = Annotated[
    list[Annotated[Item, Discriminator(_kind), BeforeValidator(_known_kind)]],
    Field(fail_fast=True, min_length=1, max_length=MAX_ITEMS),
]


def resolved(items: Sequence[Item], find: Callable[[str], KnownItem]) -> list[KnownItem]:
    """Returns the items, with what `find` has in place of each reference."""
    return [find(one.id) if isinstance(one, ItemReference) else one for one in items]


def as_messages(items: Sequence[KnownItem]) -> list[Message]:
    """Returns the items as the messages of a chat. What a model said between two turns of others
    (reasoning, text, calls) is one message, and begins another where it would say more text or
    reasoning after a call."""
    messages: list[Message] = []
    turn = _AssistantTurn()
    for item in items:
        if isinstance(item, ReasoningItem):
            if turn.has_begun:
                messages += turn.take()
            turn.reasoning += item.text
        elif isinstance(item, FunctionCallItem):
            function = CalledFunction(name=item.name, arguments=item.arguments)
            turn.calls.append(ToolCall(id=item.call_id, type="function", function=function))
        elif isinstance(item, MessageItem) and item.role == "assistant":
            if turn.has_begun:
                messages += turn.take()
            turn.content = _text(item.content)
        else:
            messages += turn.take()
            messages.append(_other_message(item))
    return messages + turn.take()


class _AssistantTurn:
    """The message of an assistant that is being put together."""

    def __init__(self) -> None:
        self.reasoning = ""
        self.content: str | None = None
        self.calls: list[ToolCall] = []

    @property
    def has_begun(self) -> bool:
        return self.content is not None or bool(self.calls)

    def take(self) -> list[Message]:
        """Returns the message, and begins another. Reasoning alone is none: its answer is not
        there."""
        if not self.has_begun:
            self.reasoning = ""
            return []
        made = Message(
            role="assistant",
            content=self.content,
            reasoning_content=self.reasoning or None,
            tool_calls=self.calls or None,
        )
        self.reasoning, self.content, self.calls = "", None, []
        return [made]


def _other_message(item: MessageItem | FunctionCallOutputItem) -> Message:
    if isinstance(item, FunctionCallOutputItem):
        return Message(role="tool", content=_text(item.output), tool_call_id=item.call_id)
    return Message(role=item.role, content=_text(item.content))


def _text(content: str | list[ItemText | ItemRefusal]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)
