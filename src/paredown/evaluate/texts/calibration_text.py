"""Provides the calibration text: windows at random places of a text, or of text that the model
samples itself.

With $PAREDOWN_DATA it is the training split of the classic books, which shares no author with the
evaluation text (evaluate/texts/text.py). A chat model also sees mixed text, half of it in its chat
template. If the model samples the text itself, half of the windows begin as conversations.
"""

import lzma
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paredown.compress.calibrate.calibration import Calibration
from paredown.errors import CheckpointError, ConfigError
from paredown.evaluate.texts.chat_windows import (
    ChatTokenizer,
    Windows,
    chat_windows,
    conversation_start,
)
from paredown.evaluate.texts.text import DATA_VARIABLE, TextTokenizer, first_token, sample_text
from paredown.executors.protocol import Executor
from paredown.units import MEBI

DEFAULT_SAMPLES = 128
DEFAULT_TOKENS = 512
DATA_TEXT = Path("text") / "classic-books" / "train.txt.xz"
# Prose, code, mathematics and several languages; commonly used to calibrate importance matrices.
MIXED_TEXT = Path("text") / "calibration" / "calibration_datav3.txt"
# Windows come from the beginning of a long text, because reading more takes seconds.
_READ_BYTES = 32 * MEBI
# Bytes to cut out per token of a window. This suffices in most languages; otherwise more are taken.
_BYTES_PER_TOKEN = 8
# The limit over all windows, a thousand times the usual. Token ids are held in memory.
_MOST_TOKENS = 1 << 26


@dataclass(frozen=True, kw_only=True)
class CalibrationConfig:
    """`num_samples` windows of `num_tokens` tokens each (at most the model's context). `text` None
    uses the texts that `choose_calibration` finds."""

    text: Path | None = None
    num_samples: int = DEFAULT_SAMPLES
    num_tokens: int = DEFAULT_TOKENS
    seed: int = 0


def choose_calibration(
    config: CalibrationConfig,
    tokenizer: ChatTokenizer,
    reference: Callable[[], Executor],
    max_positions: int,
) -> Calibration:
    """Returns windows from the config's text, else from the texts in $PAREDOWN_DATA, else sampled
    from the reference model, which is loaded only then. Raises ConfigError for a text shorter than
    one window, and CheckpointError for one that cannot be read."""
    num_tokens = min(config.num_tokens, max_positions)
    check_sizes(config, num_tokens)
    parts = text_parts(config.text, tokenizer)
    if parts:
        numbers = split_evenly(config.num_samples, [part.weight for part in parts])
        found = [
            part.windows(tokenizer, number, num_tokens, config.seed)
            for part, number in zip(parts, numbers, strict=True)
            if number
        ]
        windows = np.concatenate(found)
        source = " and ".join(
            dict.fromkeys(part.words for part, number in zip(parts, numbers, strict=True) if number)
        )
    else:
        windows = _sampled(reference(), tokenizer, config.num_samples, num_tokens)
        source = "text sampled from the model itself"
    what = f"{config.num_samples} windows of {num_tokens} tokens of {source}"
    return Calibration(windows_NT=windows, source=what)


def calibration_texts(config: CalibrationConfig, tokenizer: ChatTokenizer) -> list[Path]:
    """Returns the texts that windows come from, each once; empty where the model writes its own."""
    return list(dict.fromkeys(part.path for part in text_parts(config.text, tokenizer)))


def split_evenly(total: int, weights: Sequence[int]) -> list[int]:
    """Splits `total` into whole numbers as close to the weights as possible; the first gets the
    remainder."""
    shares = [total * weight // sum(weights) for weight in weights]
    shares[0] += total - sum(shares)
    return shares


def check_sizes(config: CalibrationConfig, num_tokens: int) -> None:
    """Raises ConfigError for sizes out of range; windows have `num_tokens` tokens."""
    for option, value, least in (
        ("--samples", config.num_samples, 1),
        ("--calibration-tokens", config.num_tokens, 2),
        ("--seed", config.seed, 0),
    ):
        if value < least:
            raise ConfigError(
                f"{option} is too small to calibrate with",
                seen=value,
                remedy=f"Give at least {least}.",
            )
    if config.num_samples * num_tokens > _MOST_TOKENS:
        raise ConfigError(
            "that is more text than a calibration can hold",
            seen=f"--samples {config.num_samples} of {num_tokens} tokens",
            remedy=f"Give fewer: up to {_MOST_TOKENS:,} tokens in all.",
        )


@dataclass(frozen=True, kw_only=True)
class TextPart:
    """A text with its `weight` among the windows; `as_chat` renders it in the chat template."""

    path: Path
    weight: int = 1
    as_chat: bool = False

    @property
    def words(self) -> str:
        return f"{self.path.name} as conversations" if self.as_chat else self.path.name

    def windows(
        self, tokenizer: ChatTokenizer, num_samples: int, num_tokens: int, seed: int
    ) -> Windows:
        text = read_beginning(self.path)
        if self.as_chat:
            return chat_windows(text, tokenizer, num_samples, num_tokens, seed)
        windows = cut_windows(text, tokenizer, num_samples, num_tokens, seed, self.path)
        first = first_token(tokenizer)
        if first is not None:
            windows[:, 0] = first
        return windows


def text_parts(text: Path | None, tokenizer: ChatTokenizer) -> list[TextPart]:
    """Returns the text of that file alone, or those of $PAREDOWN_DATA; empty without either."""
    if text is not None:
        return [TextPart(path=text)]
    if DATA_VARIABLE not in os.environ:
        return []
    root = Path(os.environ[DATA_VARIABLE])
    parts = [TextPart(path=root / DATA_TEXT)]
    if tokenizer.has_chat_template:
        mixed = root / MIXED_TEXT
        parts += [TextPart(path=mixed), TextPart(path=mixed, as_chat=True)]
    return [part for part in parts if part.path.is_file()]


def _sampled(
    executor: Executor, tokenizer: ChatTokenizer, num_samples: int, num_tokens: int
) -> Windows:
    """Returns windows that the model samples, half of them as conversations if it has a
    template."""
    first, begin = first_token(tokenizer), conversation_start(tokenizer)
    numbers = [num_samples] if begin is None else split_evenly(num_samples, [1, 1])
    found = []
    for number, start in zip(numbers, (None, begin), strict=False):
        if number:
            ids = sample_text(executor, tokenizer, number * num_tokens, start)
            found.append(np.array(ids, np.int64).reshape(number, num_tokens))
    if first is not None:
        found[0][:, 0] = first
    return np.concatenate(found)


def cut_windows(
    text: str, tokenizer: TextTokenizer, num_samples: int, num_tokens: int, seed: int, path: Path
) -> Windows:
    """Returns windows that each begin at a random character's next space. Raises ConfigError for a
    text shorter than one."""
    rng = np.random.default_rng(seed)
    length = num_tokens * _BYTES_PER_TOKEN
    windows = np.empty((num_samples, num_tokens), np.int64)
    for number in range(num_samples):
        start = int(rng.integers(0, max(1, len(text) - length)))
        start = max(0, text.find(" ", start)) if start else 0
        ids = tokenizer.encode(text[start : start + length])
        if len(ids) < num_tokens:
            ids = tokenizer.encode(text)[-num_tokens:]
        if len(ids) < num_tokens:
            raise ConfigError(
                "the calibration text is shorter than one window",
                seen=f"{len(ids)} tokens in {path.name}, windows of {num_tokens}",
                remedy="Give a longer text (--calibration-text) or shorter windows "
                "(--calibration-tokens).",
            )
        windows[number] = ids[:num_tokens]
    return windows


def read_beginning(path: Path, max_bytes: int = _READ_BYTES) -> str:
    """Returns the beginning of a text file, decompressed where its name ends in .xz. Raises
    CheckpointError for a file that cannot be read, and ConfigError for one that is not UTF-8."""
    try:
        with lzma.open(path, "rb") if path.suffix == ".xz" else path.open("rb") as file:
            raw = file.read(max_bytes)
    except (OSError, lzma.LZMAError, EOFError) as error:
        raise CheckpointError(
            f"the calibration text {path} cannot be read",
            seen=error,
            remedy="Name a UTF-8 text file (--calibration-text).",
        ) from error
    try:
        # The cut may split a character.
        return raw.decode("utf-8", errors="ignore" if len(raw) == max_bytes else "strict")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not text",
            seen=error,
            remedy="Name a UTF-8 text file (--calibration-text).",
        ) from error
