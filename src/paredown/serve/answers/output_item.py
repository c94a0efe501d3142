"""OutputItem: an item of a response: a message, reasoning, or a call of a function."""

import secrets
from dataclasses import dataclass, field
from typing import Literal

from paredown.serve.answers.usage import Body

ItemKind = Literal["message", "reasoning", "function_call"]
_EVENT_STEMS = {
    "message": "response.output_text",
    "reasoning": "response.reasoning_text",
    "function_call": "response.function_call_arguments",
}


def new_id(prefix: str) -> str:
    """Returns an id that nobody can guess."""
    return f"{prefix}_{secrets.token_hex(16)}"


@dataclass(slots=True)
class OutputItem:
    """`parts` join to its text: that of a message or of reasoning, or the arguments of a call of
    `name`, whose result comes back under `call_id`."""

    kind: ItemKind
    id: str
    name: str = ""
    call_id: str = ""
    status: str = "in_progress"
    parts: list[str] = field(default_factory=list)

    @classmethod
    def message(cls) -> "OutputItem":
        return cls("message", new_id("msg"))

    @classmethod
    def reasoning(cls) -> "OutputItem":
        return cls("reasoning", new_id("rs"))

    @classmethod
    def call(cls, name: str) -> "OutputItem":
        return cls("function_call", new_id("fc"), name, new_id("call"))

    @property
    def text(self) -> str:
        return "".join(self.parts)

    @property
    def event_stem(self) -> str:
        """Returns how the events of its text are called, before `.delta` and `.done`."""
        return _EVENT_STEMS[self.kind]

    def part(self, text: str) -> Body:
        """Returns the content of a message or of reasoning."""
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def delta_fields(self) -> Body:
        """Returns what events of a piece of its text say beside it."""
        match self.kind:
            case "message":
                return {"content_index": 0, "logprobs": []}
            case "reasoning":
                return {"content_index": 0}
            case "function_call":
                return {}

    def done_fields(self) -> Body:
        """Returns what the event behind its text says."""
        if self.kind == "function_call":
            return {"name": self.name, "arguments": self.text}
        return {"text": self.text, **self.delta_fields()}

    def body(self) -> Body:
        """Returns the item as it is now; one in progress shows none of its text."""
        is_open = self.status == "in_progress"
        text = "" if is_open else self.text
        match self.kind:
            case "message":
                content = [] if is_open else [self.part(text)]
                fields: Body = {"role": "assistant", "content": content}
            case "reasoning":
                content = [] if is_open else [self.part(text)]
                fields = {"summary": [], "content": content, "encrypted_content": None}
            case "function_call":
                fields = {"call_id": self.call_id, "name": self.name, "arguments": text}
        return {"id": self.id, "type": self.kind, "status": self.status, **fields}
