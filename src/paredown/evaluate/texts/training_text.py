"""Provides the text that a model is trained on: windows that do not overlap.

With $PAREDOWN_DATA it is the training split of the classic books, which shares no author with the
texts that choices are made on and that models are measured on (validation_text.py, text.py). A chat
model also sees mixed text, half of it in its chat template. Without a text the model samples it,
with a seed of its own: what it is measured on is then sampled with another.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paredown.errors import ConfigError
from paredown.evaluate.texts.calibration_text import (
    TextPart,
    read_beginning,
    split_evenly,
    text_parts,
)
from paredown.evaluate.texts.chat_windows import (
    ChatTokenizer,
    Windows,
    chat_windows,
    conversation_start,
)
from paredown.evaluate.texts.text import TextTokenizer, first_token, sample_text
from paredown.executors.protocol import Executor
from paredown.units import MEBI

DEFAULT_WINDOW_TOKENS = 512
# A text's beginning from which windows come, at least; reading more of a compressed one takes
# seconds.
_READ_BYTES = 32 * MEBI
# Bytes per token of a window: enough in most languages.
_BYTES_PER_TOKEN = 8
_SEED = 1


@dataclass(frozen=True, kw_only=True)
class TrainingTextConfig:
    """`num_tokens` are wanted, in windows of `window_tokens` (at most the model's context). `text`
    None uses the texts that `choose_training_text` finds. Raises ConfigError for numbers that make
    no window."""

    num_tokens: int
    text: Path | None = None
    window_tokens: int = DEFAULT_WINDOW_TOKENS

    def __post_init__(self) -> None:
        if self.window_tokens < 2 or self.num_tokens < 1:
            raise ConfigError(
                "there is no text to train on",
                seen=f"{self.num_tokens} tokens in windows of {self.window_tokens}",
                remedy="Give at least one token, and windows of two or more.",
            )


@dataclass(frozen=True, kw_only=True)
class TrainingText:
    """N windows of T tokens; `source` says in reports what they are."""

    windows_NT: Windows
    source: str


def choose_training_text(
    config: TrainingTextConfig,
    tokenizer: ChatTokenizer,
    reference: Callable[[], Executor],
    max_positions: int,
) -> TrainingText:
    """Returns windows of the config's text, else of the texts in $PAREDOWN_DATA, else of what the
    reference model samples, which is loaded only then. A short text gives fewer than wanted, and is
    then read more than once. Raises ConfigError for a text shorter than one window, and
    CheckpointError for one that cannot be read."""
    num_tokens = min(config.window_tokens, max_positions)
    wanted = -(-config.num_tokens // num_tokens)
    parts = text_parts(config.text, tokenizer)
    if parts:
        windows_NT = _from_texts(parts, tokenizer, wanted, num_tokens)
        words = " and ".join(dict.fromkeys(part.words for part in parts))
    else:
        windows_NT = _sampled(reference(), tokenizer, wanted, num_tokens)
        words = "text sampled from the model itself"
    source = f"{len(windows_NT):,} windows of {num_tokens} tokens of {words}"
    return TrainingText(windows_NT=windows_NT, source=source)


def _from_texts(
    parts: list[TextPart], tokenizer: ChatTokenizer, wanted: int, num_tokens: int
) -> Windows:
    """Shares the windows out over the texts; the first, the longest, makes up for short ones."""
    numbers = split_evenly(wanted, [part.weight for part in parts])
    found: list[Windows] = []
    for part, number in zip(parts[1:], numbers[1:], strict=True):
        if part.as_chat and number:
            text = read_beginning(part.path)
            found.append(chat_windows(text, tokenizer, number, num_tokens, _SEED))
        elif number:
            found.append(_cut(part.path, tokenizer, number, num_tokens))
    missing = wanted - sum(map(len, found))
    found.insert(0, _cut(parts[0].path, tokenizer, missing, num_tokens))
    windows_NT = np.concatenate(found)
    if not len(windows_NT):
        raise ConfigError(
            "the training text is shorter than one window",
            seen=f"{parts[0].path.name}, windows of {num_tokens} tokens",
            remedy="Give a longer text, or shorter windows.",
        )
    return windows_NT


def _cut(path: Path, tokenizer: TextTokenizer, wanted: int, num_tokens: int) -> Windows:
    """Cuts windows from places at even distances, each at a word's beginning; or all the text's
    tokens one after another where it is short. Each begins with the tokenizer's first token."""
    length = num_tokens * _BYTES_PER_TOKEN
    text = read_beginning(path, max(_READ_BYTES, 2 * wanted * length))
    first = first_token(tokenizer)
    begin = [] if first is None else [first]
    size = num_tokens - len(begin)
    distance = len(text) // max(1, wanted)
    if distance < length:
        ids = tokenizer.encode(text)[: wanted * size]
        pieces = [ids[at : at + size] for at in range(0, len(ids), size)]
    else:
        starts = (max(0, text.find(" ", at)) for at in range(0, wanted * distance, distance))
        pieces = [tokenizer.encode(text[at : at + length])[:size] for at in starts]
    windows = [begin + piece for piece in pieces if len(piece) == size]
    return np.array(windows, np.int64).reshape(-1, num_tokens)


def _sampled(executor: Executor, tokenizer: ChatTokenizer, wanted: int, num_tokens: int) -> Windows:
    """Returns windows that the model samples, half of them as conversations if it has a
    template."""
    first, begin = first_token(tokenizer), conversation_start(tokenizer)
    numbers = [wanted] if begin is None else split_evenly(wanted, [1, 1])
    found = []
    for number, start in zip(numbers, (None, begin), strict=False):
        if number:
            ids = sample_text(executor, tokenizer, number * num_tokens, start, seed=_SEED)
            found.append(np.array(ids, np.int64).reshape(number, num_tokens))
    if first is not None:
        found[0][:, 0] = first
    return np.concatenate(found)
