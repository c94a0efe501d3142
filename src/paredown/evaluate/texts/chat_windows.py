"""Renders text as conversations in a model's chat template."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from paredown.errors import ParedownError
from paredown.evaluate.texts.text import TextTokenizer

Windows = np.ndarray[tuple[int, int], np.dtype[np.int64]]

# Lengths of a question and of an answer in characters.
_QUESTION_CHARS, _ANSWER_CHARS = 240, 900
_MARK = "\N{BLACK STAR}"


class ChatTokenizer(TextTokenizer, Protocol):
    """A tokenizer of a model that may have a chat template."""

    @property
    def has_chat_template(self) -> bool: ...
    def render_chat(self, messages: Sequence[Mapping[str, object]], /) -> str: ...


def chat_windows(
    text: str, tokenizer: ChatTokenizer, num_samples: int, num_tokens: int, seed: int
) -> Windows:
    """Returns windows that begin like a conversation. Stretches of the text become the turns of
    user and assistant, one conversation after another."""
    rng = np.random.default_rng(seed)
    windows = np.empty((num_samples, num_tokens), np.int64)
    for number in range(num_samples):
        ids: list[int] = []
        while len(ids) < num_tokens:
            ids += tokenizer.encode(_conversation(text, tokenizer, rng))
        windows[number] = ids[:num_tokens]
    return windows


def conversation_start(tokenizer: ChatTokenizer) -> list[int] | None:
    """Returns the tokens before the user's first words; None without a template, or with one that
    does not let a user begin."""
    if not tokenizer.has_chat_template:
        return None
    try:
        rendered = tokenizer.render_chat([{"role": "user", "content": _MARK}])
    except ParedownError:  # a template that refuses says nothing against calibrating on plain text
        return None
    before, mark, _ = rendered.partition(_MARK)
    return tokenizer.encode(before) or None if mark else None


def _conversation(text: str, tokenizer: ChatTokenizer, rng: np.random.Generator) -> str:
    """Returns two questions and two answers, in the text's order."""
    length = 2 * (_QUESTION_CHARS + _ANSWER_CHARS)
    start = int(rng.integers(0, max(1, len(text) - length)))
    start = max(0, text.find(" ", start)) if start else 0
    turns = []
    for size in (_QUESTION_CHARS, _ANSWER_CHARS) * 2:
        turns.append(text[start : start + size].strip() or text[:size])
        start += size
    roles = ("user", "assistant", "user")
    messages = [{"role": role, "content": turn} for role, turn in zip(roles, turns, strict=False)]
    return tokenizer.render_chat(messages) + turns[-1]
