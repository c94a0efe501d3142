"""TrainingData: the rows that a student learns from, and those held out to judge it.

A record is held out where its digest says so. So the split does not depend on the order of the
records or on what else there is, and records with the same content are on the same side.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from paredown.distill.data.encode import Encoder
from paredown.distill.data.record import Record, UnusableError, record_digest
from paredown.distill.data.training_file import read_records
from paredown.distill.rows import Rows, Text
from paredown.errors import ConfigError
from paredown.models.text.tokenizer import Tokenizer
from paredown.units import format_count

DEFAULT_ROW_TOKENS = 512
DEFAULT_HELD_OUT = 0.05
# A hundredth of what is trained on judges the student, so that ten looks take a twentieth of the
# time. Too few tokens judge nothing, and more than these judge no better.
_HELD_OUT_PART = 100
_LEAST_HELD_OUT_TOKENS, _MAX_HELD_OUT_TOKENS = 1024, 32_768
_TWICE = "the same as one before"


@dataclass(frozen=True, kw_only=True)
class TrainingDataConfig:
    """Says what a student is trained on. Raises ConfigError for numbers out of range.

    `paths`       UTF-8 texts or files of JSON lines (docs/guide/distill.md); none takes the texts
                  under $PAREDOWN_DATA, else what the teacher samples
    `row_tokens`  tokens of a row, at most the context of both models
    `held_out`    the share that is not trained on, by which the best weights are chosen; 0 is none
    """

    paths: tuple[Path, ...] = ()
    row_tokens: int = DEFAULT_ROW_TOKENS
    held_out: float = DEFAULT_HELD_OUT

    def __post_init__(self) -> None:
        if self.row_tokens < 2:
            raise ConfigError(
                "rows are too short to predict anything in",
                seen=self.row_tokens,
                remedy="Give rows of at least two tokens.",
            )
        if not 0 <= self.held_out < 1:
            raise ConfigError(
                "the share that is held out is no share",
                seen=self.held_out,
                remedy="Give a number from 0 to below 1; 0.05 holds out a twentieth.",
            )


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """`source` says in reports what it is, `notes` what was left out or cut. `held_out` is None
    where nothing is."""

    rows: Rows
    held_out: Rows | None
    source: str
    notes: tuple[str, ...] = ()


def read_training_data(
    config: TrainingDataConfig, tokenizer: Tokenizer, vocab_size: int, num_tokens: int
) -> TrainingData:
    """Reads the files in their order until `num_tokens` can be trained on. Raises ConfigError where
    nothing is left to train on, or for a file that is not text, and CheckpointError for one that
    cannot be read."""
    reader = _Reader(config, Encoder(tokenizer, vocab_size), num_tokens)
    for path in config.paths:
        for record in read_records(path):
            reader.take(record)
            if reader.is_full:
                break
    return reader.data()


def split_windows(rows: Rows, source: str, held_out: float, num_tokens: int) -> TrainingData:
    """Returns windows of a text as training data, of which `num_tokens` are trained on; those whose
    digest says so are held out."""
    taken = np.array(
        [is_held_out(_window_digest(rows, index), held_out) for index in range(rows.num_rows)]
    )
    if taken.all():
        taken[0] = False
    most = max(1, _held_out_tokens(num_tokens) // rows.num_tokens)
    places = np.flatnonzero(taken)[:most]
    return TrainingData(
        rows=Rows.from_windows(rows.tokens_NT[~taken]),
        held_out=Rows.from_windows(rows.tokens_NT[places]) if len(places) else None,
        source=source,
        notes=() if len(places) or not held_out else (_nothing_held_out(rows.num_rows, "window"),),
    )


@dataclass
class _Reader:
    """Takes one record after another."""

    config: TrainingDataConfig
    encoder: Encoder
    wanted: int
    texts: list[Text] = field(default_factory=list)
    held_out: list[Text] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    seen: set[bytes] = field(default_factory=set)
    num_tokens: int = 0
    num_held_out_tokens: int = 0
    num_records: int = 0

    @property
    def is_full(self) -> bool:
        return self.num_tokens >= self.wanted

    def take(self, record: Record | UnusableError) -> None:
        self.num_records += 1
        try:
            if isinstance(record, UnusableError):
                raise record
            digest = record_digest(record)
            if digest in self.seen:
                raise UnusableError(_TWICE)
            texts = self.encoder.encode(record)
        except UnusableError as error:
            self.dropped[str(error)] += 1
            return
        self.seen.add(digest)
        size = sum(len(text.token_ids) for text in texts)
        if not is_held_out(digest, self.config.held_out):
            self.texts += texts
            self.num_tokens += size
        elif self.num_held_out_tokens < _held_out_tokens(self.wanted):
            self.held_out += texts
            self.num_held_out_tokens += size

    def data(self) -> TrainingData:
        if not self.texts:
            raise ConfigError(
                "there is nothing to train on in the data",
                seen=f"{format_count(self.num_records, 'record')}{_told(self.dropped)}",
                remedy="Give a text, or JSON lines with a text, a prompt and a completion, or "
                "messages (--data).",
            )
        rows = Rows.pack(self.texts, self.config.row_tokens)
        held_out = Rows.pack(self.held_out, self.config.row_tokens) if self.held_out else None
        names = " and ".join(path.name for path in self.config.paths)
        return TrainingData(
            rows=rows,
            held_out=held_out,
            source=f"{format_count(len(self.texts), 'text')} of {names}, packed in rows of "
            f"{rows.num_tokens} tokens",
            notes=tuple(self._notes()),
        )

    def _notes(self) -> Iterator[str]:
        if self.dropped:
            yield (
                f"{format_count(self.dropped.total(), 'record')} of {self.num_records:,} left out"
                f"{_told(self.dropped)}"
            )
        cut = sum(len(text.token_ids) > self.config.row_tokens for text in self.texts)
        if cut:
            yield (
                f"{format_count(cut, 'text')} longer than a row of {self.config.row_tokens} tokens "
                "cut; a later piece does not see the earlier ones"
            )
        if self.is_full:
            yield f"read until {self.num_tokens:,} tokens were found; the rest is not needed"
        if not self.held_out and self.config.held_out:
            yield _nothing_held_out(len(self.texts), "text")


def _told(dropped: Mapping[str, int]) -> str:
    listed = ", ".join(f"{reason} ({count:,})" for reason, count in sorted(dropped.items()))
    return f": {listed}" if listed else ""


def _nothing_held_out(count: int, what: str) -> str:
    return f"{format_count(count, what)} are too few to hold one out; nothing judges the student"


def _held_out_tokens(num_tokens: int) -> int:
    """Returns how many tokens judge the student, at most."""
    part = max(_LEAST_HELD_OUT_TOKENS, num_tokens // _HELD_OUT_PART)
    return min(part, _MAX_HELD_OUT_TOKENS)


def is_held_out(digest: bytes, share: float) -> bool:
    """Returns whether a record of that digest is among the share that is held out."""
    return int.from_bytes(digest[:8]) < share * 2.0**64


def _window_digest(rows: Rows, index: int) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(rows.tokens_NT[index]).data).digest()
