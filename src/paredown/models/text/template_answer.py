"""The reply of the process that renders chat templates: a kind and a text."""

from enum import Enum


class AnswerKind(Enum):
    """The first byte of an answer."""

    TEXT = b"t"
    REFUSED = b"r"
    DAMAGED = b"d"
    TOO_LONG = b"l"


def write_answer(kind: AnswerKind, text: str) -> bytes:
    # Lone surrogates pass, so that the tokenizer can refuse them.
    return kind.value + text.encode("utf-8", "surrogatepass")


def read_answer(answer: bytes) -> tuple[AnswerKind, str]:
    return AnswerKind(answer[:1]), answer[1:].decode("utf-8", "surrogatepass")
