"""Prompts become tokens here and nowhere else: the rule for the beginning-of-sequence token."""

from typing import Protocol


class PromptTokenizer(Protocol):
    """What a prompt needs of a tokenizer."""

    @property
    def bos_token_id(self) -> int | None: ...

    @property
    def add_bos(self) -> bool: ...

    def encode(self, text: str, /) -> list[int]: ...

    def render_chat(self, messages: list[dict[str, object]], /) -> str: ...


def encode_prompt(tokenizer: PromptTokenizer, text: str) -> list[int]:
    """Tokens of plain text, after the bos token when the checkpoint asks for it."""
    token_ids = tokenizer.encode(text)
    if tokenizer.add_bos and tokenizer.bos_token_id is not None:
        return [tokenizer.bos_token_id, *token_ids]
    return token_ids


def encode_chat(tokenizer: PromptTokenizer, messages: list[dict[str, object]]) -> list[int]:
    """Tokens of a conversation. The chat template alone decides whether it begins with bos."""
    return tokenizer.encode(tokenizer.render_chat(messages))
