"""The text that calibration looks at: windows at random places of a text, or of text that the model
itself samples.

With $PAREDOWN_DATA the text is the training split of the classic books, which shares no author with
the text that quality is measured on (evaluate/texts/text.py).
"""

import lzma
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paredown.compress.calibrate.calibration import Calibration
from paredown.errors import CheckpointError, ConfigError
from paredown.evaluate.texts.text import DATA_VARIABLE, TextTokenizer, first_token, sample_text
from paredown.executors.protocol import Executor
from paredown.units import MEBI

DEFAULT_SAMPLES = 128
DEFAULT_TOKENS = 512
DATA_TEXT = Path("text") / "classic-books" / "train.txt.xz"
# Windows come from the beginning of a long text; reading and unpacking more takes seconds.
_READ_BYTES = 32 * MEBI
# Bytes cut out for a window: enough for its tokens in most languages; more are taken if not.
_BYTES_PER_TOKEN = 8
# In all windows: a thousand times the usual. Token ids are in memory.
_MOST_TOKENS = 1 << 26


@dataclass(frozen=True, kw_only=True)
class CalibrationConfig:
    """`num_samples` windows of `num_tokens` tokens each (at most the model's context); `text` None
    is the text that `choose_calibration` finds."""

    text: Path | None = None
    num_samples: int = DEFAULT_SAMPLES
    num_tokens: int = DEFAULT_TOKENS
    seed: int = 0


def choose_calibration(
    config: CalibrationConfig,
    tokenizer: TextTokenizer,
    reference: Callable[[], Executor],
    max_positions: int,
) -> Calibration:
    """Windows from the config's text, else from the classic books where $PAREDOWN_DATA has them,
    else sampled from the reference model (made only then). Raises ConfigError for a text shorter
    than one window, CheckpointError for one that cannot be read."""
    path, num_samples = config.text, config.num_samples
    num_tokens = min(config.num_tokens, max_positions)
    for option, value, least in (
        ("--samples", num_samples, 1),
        ("--calibration-tokens", config.num_tokens, 2),
        ("--seed", config.seed, 0),
    ):
        if value < least:
            raise ConfigError(
                f"{option} is too small to calibrate with",
                seen=value,
                remedy=f"Give at least {least}.",
            )
    if num_samples * num_tokens > _MOST_TOKENS:
        raise ConfigError(
            "that is more text than a calibration can hold",
            seen=f"--samples {num_samples} of {num_tokens} tokens",
            remedy=f"Give fewer: up to {_MOST_TOKENS:,} tokens in all.",
        )
    if path is None and DATA_VARIABLE in os.environ:
        books = Path(os.environ[DATA_VARIABLE]) / DATA_TEXT
        path = books if books.is_file() else None
    if path is None:
        ids = sample_text(reference(), tokenizer, num_samples * num_tokens)
        windows = np.array(ids, np.int64).reshape(num_samples, num_tokens)
        source = "text sampled from the model itself"
    else:
        windows = _windows(_read(path), tokenizer, num_samples, num_tokens, config.seed, path)
        source = path.name
    first = first_token(tokenizer)
    if first is not None:
        windows[:, 0] = first
    what = f"{num_samples} windows of {num_tokens} tokens of {source}"
    return Calibration(windows_NT=windows, source=what)


def _windows(
    text: str, tokenizer: TextTokenizer, num_samples: int, num_tokens: int, seed: int, path: Path
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Each begins at a random character, at the next space."""
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


def _read(path: Path) -> str:
    """The beginning of a text file, unpacked where its name ends in .xz."""
    try:
        with lzma.open(path, "rb") if path.suffix == ".xz" else path.open("rb") as file:
            raw = file.read(_READ_BYTES)
    except (OSError, lzma.LZMAError, EOFError) as error:
        raise CheckpointError(
            f"the calibration text {path} cannot be read",
            seen=error,
            remedy="Name a UTF-8 text file (--calibration-text).",
        ) from error
    try:
        # The cut may go through a character.
        return raw.decode("utf-8", errors="ignore" if len(raw) == _READ_BYTES else "strict")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not text",
            seen=error,
            remedy="Name a UTF-8 text file (--calibration-text).",
        ) from error
