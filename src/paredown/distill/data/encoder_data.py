"""The texts that an encoder learns from: sentences of text files, or JSON lines with a `text`, the
`text_pair` that belongs to it, and its `label`."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paredown.distill.data.record import UnusableError
from paredown.distill.data.training_data import TrainingDataConfig, is_held_out
from paredown.distill.data.training_file import is_json_lines, read_lines, read_whole_text
from paredown.distill.encoder_rows import EncoderRows, LabelledText
from paredown.errors import ConfigError
from paredown.json_text import JsonTextError, parse_json
from paredown.models.text.sentences import sentences
from paredown.models.text.whole_text import WholeText
from paredown.units import format_count

_TWICE = "the same as one before"


@dataclass(frozen=True, kw_only=True)
class EncoderData:
    """`held_out` is None where nothing is. `source` says in reports what it is, `notes` what was
    left out."""

    rows: EncoderRows
    held_out: EncoderRows | None
    source: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Example:
    """A text, or a pair; `label` is a number or a name."""

    text: str
    pair: str | None = None
    label: int | str | None = None

    @property
    def digest(self) -> bytes:
        """A SHA-256 that depends on what the example holds alone."""
        return hashlib.sha256(json.dumps([self.text, self.pair, self.label]).encode()).digest()


def parse_example(line: bytes) -> Example:
    """Returns the example of a line of JSON. Raises UnusableError."""
    try:
        fields = parse_json(line)
    except JsonTextError as error:
        raise UnusableError("no JSON") from error
    if not isinstance(fields, dict):
        raise UnusableError("no JSON object")
    text, pair, label = (fields.get(name) for name in ("text", "text_pair", "label"))
    if not isinstance(text, str) or not text.strip():
        raise UnusableError("no text")
    if pair is not None and not isinstance(pair, str):
        raise UnusableError("text_pair is no text")
    if isinstance(label, bool) or not isinstance(label, int | str | None):
        raise UnusableError("label is neither a number nor a name")
    return Example(text=text, pair=pair, label=label)


def read_examples(paths: Sequence[Path]) -> Iterator[Example | UnusableError]:
    """Yields the examples of files in their order. Raises CheckpointError for a file that cannot be
    read, and ConfigError for a text that is not UTF-8."""
    for path in paths:
        if not is_json_lines(path):
            yield from (Example(text=one) for one in sentences(read_whole_text(path)))
            continue
        for line in read_lines(path):
            try:
                yield line if isinstance(line, UnusableError) else parse_example(line)
            except UnusableError as error:
                yield error


def encoder_data(
    examples: Iterator[Example | UnusableError],
    config: TrainingDataConfig,
    whole: WholeText,
    labels: Sequence[str],
    *,
    num_tokens: int,
    source: str,
) -> EncoderData:
    """Reads examples until `num_tokens` can be trained on. `labels` are the names of a classifier's
    labels. Raises ConfigError where nothing is left to train on."""
    reader = _Reader(
        config=config,
        whole=whole,
        numbers={name: number for number, name in enumerate(labels)},
        wanted=num_tokens,
    )
    for example in examples:
        reader.take(example)
        if reader.num_tokens >= num_tokens:
            break
    return reader.data(source)


@dataclass
class _Reader:
    config: TrainingDataConfig
    whole: WholeText
    numbers: Mapping[str, int]
    wanted: int
    texts: list[LabelledText] = field(default_factory=list)
    held_out: list[LabelledText] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    seen: set[bytes] = field(default_factory=set)
    num_tokens: int = 0

    def take(self, example: Example | UnusableError) -> None:
        try:
            if isinstance(example, UnusableError):
                raise example
            digest = example.digest
            if digest in self.seen:
                raise UnusableError(_TWICE)
            text = self._encoded(example)
        except UnusableError as error:
            self.dropped[str(error)] += 1
            return
        self.seen.add(digest)
        if is_held_out(digest, self.config.held_out):
            self.held_out.append(text)
        else:
            self.texts.append(text)
            self.num_tokens += len(text.token_ids)

    def _encoded(self, example: Example) -> LabelledText:
        label = self._number(example.label)
        if example.pair is None:
            return LabelledText(token_ids=self.whole.encode(example.text), label=label)
        ids, types = self.whole.encode_pair(example.text, example.pair)
        return LabelledText(token_ids=ids, type_ids=types, label=label)

    def _number(self, label: int | str | None) -> int | None:
        number = self.numbers.get(label) if isinstance(label, str) else label
        if label is not None and (number is None or not 0 <= number < len(self.numbers)):
            raise UnusableError("a label that the model does not have")
        return number

    def data(self, source: str) -> EncoderData:
        dropped = ", ".join(f"{why} ({count:,})" for why, count in sorted(self.dropped.items()))
        if not self.texts:
            raise ConfigError(
                "there is nothing to train on in the data",
                seen=dropped or "no text",
                remedy="Give sentences, or JSON lines with a text and, for a classifier, a label "
                "(--data).",
            )
        rows = EncoderRows.pack(self.texts, self.config.row_tokens)
        held_out = None
        if self.held_out:
            held_out = EncoderRows.pack(self.held_out, self.config.row_tokens)
        notes = []
        if dropped:
            left_out = format_count(self.dropped.total(), "record")
            notes.append(f"{left_out} left out: {dropped}")
        if self.config.held_out and held_out is None:
            notes.append("too few texts to hold one out; nothing judges the student")
        return EncoderData(
            rows=rows,
            held_out=held_out,
            source=f"{format_count(len(self.texts), 'text')} of {source}, packed in rows of "
            f"{rows.num_tokens} tokens",
            notes=tuple(notes),
        )
