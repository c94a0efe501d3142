"""Record: one example of a training file, and what a line of JSON must hold to be one."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from paredown.json_text import JsonTextError, parse_json

ASSISTANT = "assistant"


class UnusableError(ValueError):
    """A record that nothing can be learned from. Its text is the reason, the same for all records
    of that kind."""


@dataclass(frozen=True, kw_only=True)
class PlainText:
    """A text that is learned whole. `ends` says that its end is an end to be learned."""

    text: str
    ends: bool = True


@dataclass(frozen=True, kw_only=True)
class PromptCompletion:
    """A completion to be learned, and the prompt before it."""

    prompt: str
    completion: str


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """Messages for the chat template; the assistant's are to be learned."""

    messages: tuple[Mapping[str, object], ...]


Record = PlainText | PromptCompletion | Conversation


def record_digest(record: Record) -> bytes:
    """Returns a SHA-256 that depends on what the record holds alone."""
    held = json.dumps([type(record).__name__, asdict(record)], sort_keys=True, default=dict)
    return hashlib.sha256(held.encode()).digest()


def parse_record(line: bytes) -> Record:
    """Returns the record of a line of JSON: `messages`, `prompt` with `completion`, or `text`, the
    first that is there. Raises UnusableError."""
    try:
        fields = parse_json(line)
    except JsonTextError as error:
        raise UnusableError("no JSON") from error
    if not isinstance(fields, dict):
        raise UnusableError("no JSON object")
    if "messages" in fields:
        return _conversation(fields["messages"])
    if "completion" in fields:
        prompt, completion = _text(fields, "prompt"), _text(fields, "completion")
        if not completion:
            raise UnusableError("an empty completion")
        return PromptCompletion(prompt=prompt, completion=completion)
    if "text" in fields:
        text = _text(fields, "text")
        if not text.strip():
            raise UnusableError("an empty text")
        return PlainText(text=text)
    raise UnusableError("no text, no prompt with completion, no messages")


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise UnusableError(f"{name} is no text")
    return value


def _conversation(messages: object) -> Conversation:
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise UnusableError("messages are no list of objects")
    for message in messages:
        if not isinstance(message.get("role"), str):
            raise UnusableError("a message without a role")
        if not isinstance(message.get("content"), str) and "tool_calls" not in message:
            raise UnusableError("a message without a text")
    if not any(message["role"] == ASSISTANT for message in messages[1:]):
        raise UnusableError("no answer of the assistant")
    return Conversation(messages=tuple(messages))
