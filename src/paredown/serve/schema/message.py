"""A turn of a conversation, as clients send it."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from paredown.serve.schema.strict import MESSAGE_NO_OPS, Strict, drop_no_ops

MAX_MESSAGES = 4096
MAX_PARTS = 4096


class TextPart(Strict):
    type: Literal["text"]
    text: str


class Message(Strict):
    """One turn. `developer` is the newer name of `system`."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(fail_fast=True, max_length=MAX_PARTS)]

    @model_validator(mode="before")
    @classmethod
    def _drop_no_ops(cls, fields: Any) -> Any:
        return drop_no_ops(fields, MESSAGE_NO_OPS)

    def plain(self) -> dict[str, object]:
        """Returns the message in the form that chat templates expect."""
        parts = self.content
        text = parts if isinstance(parts, str) else "".join(part.text for part in parts)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}
