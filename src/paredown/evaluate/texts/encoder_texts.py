"""Texts for encoders, which read whole texts with the special tokens around them.

A text is a sentence of a file (models/text/sentences.py). It is cut as the encoder cuts a text that
is too long. Without any file texts are random tokens, since an encoder writes none.

Shapes: N texts of T tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paredown.compress.calibrate.calibration import Calibration
from paredown.errors import ConfigError
from paredown.evaluate.texts.calibration_text import DATA_TEXT as CALIBRATION_DATA
from paredown.evaluate.texts.calibration_text import CalibrationConfig, read_beginning
from paredown.evaluate.texts.text import DATA_TEXT, data_file
from paredown.executors.encoder_protocol import TokenText
from paredown.models.text.sentences import sentences
from paredown.models.text.whole_text import SurroundingTokenizer, WholeText

# Longer texts are cut: most texts that are searched and classified are no longer.
MAX_TEXT_TOKENS = 128
_RANDOM = "random tokens, since there was no text"


@dataclass(frozen=True, kw_only=True)
class EncoderTexts:
    """`source` says in reports where the texts come from."""

    texts: tuple[TokenText, ...]
    source: str

    @property
    def num_tokens(self) -> int:
        return sum(len(text.token_ids) for text in self.texts)

    @property
    def protocol(self) -> str:
        """Returns one sentence for reports."""
        most = max(len(text.token_ids) for text in self.texts)
        return (
            f"{len(self.texts):,} texts ({self.num_tokens:,} tokens, {most} at most) of "
            f"{self.source}, each whole with its special tokens"
        )


def choose_encoder_texts(
    path: Path | None,
    tokenizer: SurroundingTokenizer,
    num_tokens: int,
    *,
    vocab_size: int,
    max_positions: int,
) -> EncoderTexts:
    """Returns texts of about `num_tokens` tokens in all: those at the beginning of `path`, else of
    the classic books in $PAREDOWN_DATA, else random ones. Raises ConfigError for fewer than one
    token and for a file without texts, CheckpointError for one that cannot be read."""
    if num_tokens < 1:
        raise ConfigError(
            "there is nothing to measure on: no token of the text",
            seen=num_tokens,
            remedy="Give --tokens (--verify-tokens of `paredown distill`) of at least one.",
        )
    whole = WholeText(tokenizer=tokenizer, max_tokens=min(MAX_TEXT_TOKENS, max_positions))
    found = path or data_file(DATA_TEXT)
    if found is None:
        return random_texts(whole, num_tokens, vocab_size)
    texts: list[TokenText] = []
    for sentence in sentences(read_beginning(found)):
        texts.append(TokenText(token_ids=whole.encode(sentence)))
        num_tokens -= len(texts[-1].token_ids)
        if num_tokens <= 0:
            break
    if not texts:
        raise _no_texts(found)
    return EncoderTexts(texts=tuple(texts), source=found.name)


def choose_encoder_calibration(
    config: CalibrationConfig,
    tokenizer: SurroundingTokenizer,
    *,
    vocab_size: int,
    max_positions: int,
) -> Calibration:
    """Returns texts of one length: each begins with a sentence at a random place, goes on with the
    next ones, and is cut. Raises ConfigError for a text shorter than that, and CheckpointError for
    one that cannot be read."""
    max_tokens = min(config.num_tokens, MAX_TEXT_TOKENS, max_positions)
    whole = WholeText(tokenizer=tokenizer, max_tokens=max_tokens)
    rng = np.random.default_rng(config.seed)
    path = config.text or data_file(CALIBRATION_DATA)
    texts_NT = np.empty((config.num_samples, whole.max_tokens), np.int64)
    if path is None:
        texts_NT[:] = [
            whole.put(rng.integers(0, vocab_size, whole.room).tolist()) for _ in texts_NT
        ]
        return _calibration(texts_NT, _RANDOM)
    parts = list(sentences(read_beginning(path)))
    for number in range(config.num_samples):
        start = int(rng.integers(0, max(1, len(parts))))
        ids = _filled(parts[start:], tokenizer, whole.room)
        if len(ids) < whole.room:
            ids = _filled(parts, tokenizer, whole.room)
        if len(ids) < whole.room:
            raise ConfigError(
                "the calibration text is shorter than one text of it",
                seen=f"{len(ids)} tokens in {path.name}, texts of {whole.max_tokens}",
                remedy="Give a longer text (--calibration-text) or shorter texts "
                "(--calibration-tokens).",
            )
        texts_NT[number] = whole.put(ids)
    return _calibration(texts_NT, path.name)


def _filled(parts: Sequence[str], tokenizer: SurroundingTokenizer, num_tokens: int) -> list[int]:
    ids: list[int] = []
    for part in parts:
        if len(ids) >= num_tokens:
            break
        ids += tokenizer.encode(part)
    return ids


def _calibration(texts_NT: np.ndarray, source: str) -> Calibration:
    what = f"{len(texts_NT)} texts of {texts_NT.shape[1]} tokens of {source}"
    return Calibration(windows_NT=texts_NT, source=what)


def training_texts() -> list[Path]:
    """Returns the files that encoders learn from where none are named: the classic books under
    $PAREDOWN_DATA."""
    found = data_file(CALIBRATION_DATA)
    return [] if found is None else [found]


def random_texts(whole: WholeText, num_tokens: int, vocab_size: int) -> EncoderTexts:
    """Returns texts of random tokens and lengths, about `num_tokens` in all."""
    rng = np.random.default_rng(0)
    texts = []
    while num_tokens > 0:
        ids = rng.integers(0, vocab_size, int(rng.integers(1, whole.room + 1))).tolist()
        texts.append(TokenText(token_ids=whole.put(ids)))
        num_tokens -= len(texts[-1].token_ids)
    return EncoderTexts(texts=tuple(texts), source=_RANDOM)


def _no_texts(path: Path) -> ConfigError:
    return ConfigError(
        "the file has no text of several words",
        seen=path.name,
        remedy="Name a UTF-8 text file with paragraphs, or a text on each line (--text).",
    )
