"""Provides the evaluation text, cut into windows.

Protocol: the text's tokens are cut into consecutive windows that do not overlap. With a first token
(the tokenizer's bos, else <|endoftext|>) a window of C inputs is that token and C - 1 text tokens,
and predicts C text tokens, so each text token is predicted once and only from its own window.
Without one a window's first input is the text token before it, and the very first is not predicted.
"""

import codecs
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from paredown.errors import CheckpointError, ConfigError
from paredown.executors.protocol import Executor, SequenceSlice
from paredown.spec.kv import PAGE_SIZE
from paredown.spec.model import ModelSpec
from paredown.units import MEBI

# Models with longer contexts are measured on windows of this size.
MAX_WINDOW_TOKENS = 2048
DATA_VARIABLE = "PAREDOWN_DATA"
DATA_TEXT = Path("text") / "classic-books" / "test.txt"
# No tokenizer averages more bytes per token over a whole text.
_MAX_BYTES_PER_TOKEN = 16
_SAMPLING_SEED = 0
# The number of texts sampled in parallel.
_NUM_TEXTS = 8


class TextTokenizer(Protocol):
    """The part of a tokenizer that evaluation uses."""

    @property
    def bos_token_id(self) -> int | None: ...
    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...


@dataclass(frozen=True, kw_only=True)
class EvalWindow:
    """A window, where `targets[j]` is the token after `inputs[: j + 1]`. In an encoder-decoder
    these are the decoder's tokens, beside the text `encoder_ids`."""

    inputs: list[int]
    targets: list[int]
    encoder_ids: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class EvalText:
    """A text in windows. `num_tokens` tokens are predicted, and they decode to `num_bytes` bytes of
    UTF-8. `protocol` is one sentence for reports."""

    windows: list[EvalWindow]
    num_tokens: int
    num_bytes: int
    window_tokens: int
    source: str
    protocol: str


def window_tokens(max_positions: int) -> int:
    """Returns the inputs per window for a model of that context."""
    return min(max_positions, MAX_WINDOW_TOKENS)


def prepare_text(
    ids: Sequence[int], tokenizer: TextTokenizer, window: int, source: str
) -> EvalText:
    """Cuts tokens into windows of at most `window` inputs. Raises ConfigError for an empty text."""
    first = first_token(tokenizer)
    padded = [*ids] if first is None else [first, *ids]
    num_targets = len(padded) - 1
    if num_targets < 1:
        raise ConfigError(
            "there is no text to measure quality on",
            seen=f"{len(ids)} tokens of {source}",
            remedy="Give a longer text (--text) and --tokens of at least 1.",
        )
    windows = []
    for start in range(0, num_targets, window):
        targets = padded[start + 1 : start + 1 + window]
        inputs = padded[start : start + len(targets)]
        if first is not None:
            inputs[0] = first
        windows.append(EvalWindow(inputs=inputs, targets=targets))
    num_bytes = max(1, len(tokenizer.decode(padded[1:]).encode()))
    beginning = "the text token before it" if first is None else "the tokenizer's start token"
    return EvalText(
        windows=windows,
        num_tokens=num_targets,
        num_bytes=num_bytes,
        window_tokens=window,
        source=source,
        protocol=f"{num_targets:,} tokens ({num_bytes:,} bytes) of {source}, in windows of "
        f"{window} tokens that do not overlap, each starting with {beginning}; every token "
        "predicted once",
    )


def first_token(tokenizer: TextTokenizer) -> int | None:
    """Returns the token that starts a text, where the tokenizer has one."""
    if tokenizer.bos_token_id is not None:
        return tokenizer.bos_token_id
    ids = tokenizer.encode("<|endoftext|>")
    return ids[0] if len(ids) == 1 else None


def choose_text(
    path: Path | None,
    tokenizer: TextTokenizer,
    num_tokens: int,
    reference: Callable[[], Executor],
    max_positions: int,
) -> EvalText:
    """Returns the beginning of `path`, else of the classic books in $PAREDOWN_DATA, else text
    sampled with a fixed seed from the reference model, which is loaded only then. Raises
    ConfigError for fewer than one token and for a file that is not text, and CheckpointError for an
    unreadable one."""
    if num_tokens < 1:
        raise ConfigError(
            "there is nothing to measure on: no token of the text",
            seen=num_tokens,
            remedy="Give --tokens (--verify-tokens of `paredown distill`) of at least one.",
        )
    window = window_tokens(max_positions)
    path = path or data_file(DATA_TEXT)
    if path is None:
        ids = sample_text(reference(), tokenizer, num_tokens)
        return prepare_text(ids, tokenizer, window, "text sampled from the reference model")
    text = read_text(path, num_tokens * _MAX_BYTES_PER_TOKEN)
    return prepare_text(tokenizer.encode(text)[:num_tokens], tokenizer, window, path.name)


def data_file(path: Path) -> Path | None:
    """Returns a file of $PAREDOWN_DATA, if it is there."""
    root = os.environ.get(DATA_VARIABLE)
    found = None if root is None else Path(root) / path
    return found if found is not None and found.is_file() else None


def sampling_pages(spec: ModelSpec) -> int:
    """Returns the number of pages that sampling a text needs, or that an encoder-decoder needs for
    texts of both sides (evaluate/texts/sampled_answers.py)."""
    num_pages = -(-window_tokens(spec.max_positions) // PAGE_SIZE)
    if spec.encoder is not None:
        num_pages += -(-window_tokens(spec.encoder.max_positions) // PAGE_SIZE)
    return _NUM_TEXTS * num_pages


def sample_text(
    executor: Executor,
    tokenizer: TextTokenizer,
    num_tokens: int,
    start: Sequence[int] | None = None,
    seed: int = _SAMPLING_SEED,
) -> list[int]:
    """Samples tokens at temperature 1 (Gumbel-max) from several parallel texts, concatenated in the
    result. The same executor and seed give the same tokens. Each text continues `start`, which is
    part of it; with None it continues the first token, which is not."""
    rng = np.random.default_rng(seed)
    pages_each = -(-window_tokens(executor.spec.max_positions) // PAGE_SIZE)
    num_texts = max(1, min(executor.num_pages // pages_each, _NUM_TEXTS))
    first = first_token(tokenizer)
    begin = [0 if first is None else first] if start is None else [*start]
    kept_from = 1 if start is None else 0
    length = min(-(-num_tokens // num_texts), window_tokens(executor.spec.max_positions) - 1)
    # A longer text would have to be computed anew.
    length = min(length, executor.spec.rotary_switch or length)
    length = max(length, len(begin))
    texts: list[list[int]] = []
    while sum(len(text) for text in texts) < num_tokens:
        batch = [[*begin] for _ in range(num_texts)]
        position = 0
        while len(batch[0]) < length + kept_from:
            slices = [
                SequenceSlice(
                    token_ids=text[position:],
                    start=position,
                    pages=list(range(i * pages_each, (i + 1) * pages_each)),
                    num_logits=1,
                )
                for i, text in enumerate(batch)
            ]
            position = len(batch[0])
            logits = executor.step(slices)
            drawn = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
            for text, token in zip(batch, drawn, strict=True):
                text.append(int(token))
        texts += [text[kept_from:] for text in batch]
    return [token for text in texts for token in text][:num_tokens]


def read_text(path: Path, max_bytes: int | None = None) -> str:
    """Returns the file's text, or the whole characters within its first `max_bytes`. Raises
    CheckpointError for a file that cannot be read, and ConfigError for one that is not UTF-8."""
    wanted = sys.maxsize if max_bytes is None else max_bytes
    raw = bytearray()
    try:
        with path.open("rb") as file:
            # In pieces, because a single call would allocate `wanted` bytes even for a short file.
            while piece := file.read(min(wanted - len(raw), MEBI)):
                raw += piece
    except OSError as error:
        raise CheckpointError(
            f"the text {path} cannot be read",
            seen=error.strerror or error,
            remedy="Name a UTF-8 text file (--text).",
        ) from error
    try:
        # The cut may split a character; the file's end may not.
        return codecs.getincrementaldecoder("utf-8")().decode(raw, final=len(raw) < wanted)
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not text", seen=error, remedy="Name a UTF-8 text file (--text)."
        ) from error
