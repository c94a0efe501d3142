"""TeacherRequest: one question to a teacher, and the digest by which it is known again."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

Message = Mapping[str, str]

# A tokenizer makes at most one token of a byte; templates add marks, and some a system message.
_MESSAGE_TOKENS = 16
_TEMPLATE_TOKENS = 256


@dataclass(frozen=True, kw_only=True)
class TeacherRequest:
    """A conversation to be answered with at most `max_tokens` tokens. `seed` tells apart requests
    that may have the same words and shall have other answers."""

    model: str
    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float
    seed: int | None = None

    def body(self) -> bytes:
        """Returns the JSON that is sent; it is the same for equal requests."""
        fields: dict[str, object] = {
            "model": self.model,
            "messages": [dict(message) for message in self.messages],
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
        }
        if self.seed is not None:
            fields["seed"] = self.seed
        return json.dumps(fields, sort_keys=True).encode()

    @property
    def key(self) -> str:
        """SHA-256 of what is sent, without the address: a teacher may move."""
        return hashlib.sha256(self.body()).hexdigest()

    @property
    def most_tokens(self) -> int:
        """Bound on the tokens of the question and its answer."""
        texts = sum(len(message["content"].encode()) for message in self.messages)
        return texts + _MESSAGE_TOKENS * len(self.messages) + _TEMPLATE_TOKENS + self.max_tokens


def question(text: str) -> tuple[Message, ...]:
    """Returns the conversation that is one message of the user."""
    return ({"role": "user", "content": text},)
