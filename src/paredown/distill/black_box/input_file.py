"""Reads what a teacher is asked about: prompts, answers to be judged, or topics with entities.

A file of JSON lines (.jsonl, .ndjson) has one in each line; any other file is UTF-8 text with a
prompt or a topic in each line.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from paredown.distill.black_box.answer import is_unicode
from paredown.distill.black_box.request import Message, question
from paredown.errors import CheckpointError, ConfigError
from paredown.files.named_file import read_named_file
from paredown.files.refused_file import RefusedFileError
from paredown.json_text import JsonTextError, parse_json
from paredown.units import GIBI, format_count

_JSON_LINES = {".jsonl", ".ndjson"}
_MAX_FILE_BYTES = GIBI
_ROLES = {"system", "user", "assistant"}

Fields = Mapping[str, object]
Item = TypeVar("Item")


class UnusableLineError(ValueError):
    """A line that cannot be asked about. Its text is the reason, the same for all of that kind."""


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A conversation that ends with the user. `answers` are those that the line brings."""

    messages: tuple[Message, ...]
    answers: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The user's last words."""
        return self.messages[-1]["content"]


@dataclass(frozen=True, kw_only=True)
class Topic:
    """`entities` may be none: then the teacher names some."""

    name: str
    entities: tuple[str, ...] = ()


def read_prompts(
    path: Path, num_answers: int = 0, *, as_messages: bool = True
) -> tuple[list[Prompt], Counter[str]]:
    """Returns the prompts, and counts what was left out by its reason. `num_answers` is how many
    answers each must bring; prompts that have the same ones are taken once. Those of several
    messages are left out unless the result is written `as_messages`. Raises CheckpointError for a
    file that cannot be read, and ConfigError for one without a prompt."""

    def parse(fields: Fields) -> Prompt:
        found = _prompt(fields)
        if len(found.answers) < num_answers:
            raise UnusableLineError(f"less than {format_count(num_answers, 'answer')}")
        if len(found.messages) > 1 and not as_messages:
            raise UnusableLineError("several messages, which no completion can hold")
        return found

    return _read(path, parse, lambda prompt: _prompt_key(prompt, num_answers))


def read_topics(path: Path) -> tuple[list[Topic], Counter[str]]:
    """Does what `read_prompts` does, for topics."""
    return _read(path, _topic, lambda topic: topic.name)


def _read(
    path: Path, parse: Callable[[Fields], Item], key: Callable[[Item], str]
) -> tuple[list[Item], Counter[str]]:
    found: dict[str, Item] = {}
    dropped: Counter[str] = Counter()
    for line in _lines(path):
        if not line.strip():
            continue
        try:
            item = parse(_fields(line, path.suffix in _JSON_LINES))
        except UnusableLineError as error:
            dropped[str(error)] += 1
            continue
        if key(item) in found:
            dropped["came before"] += 1
        found.setdefault(key(item), item)
    if not found:
        raise ConfigError(
            f"{path} has nothing to ask about",
            seen=dict(dropped) or "an empty file",
            remedy="Give another --input; docs/guide/black_box.md says what a line holds.",
        )
    return list(found.values()), dropped


def _lines(path: Path) -> list[bytes]:
    try:
        return read_named_file(path, _MAX_FILE_BYTES).removeprefix(b"\xef\xbb\xbf").splitlines()
    except OSError as error:
        remedy = error.remedy if isinstance(error, RefusedFileError) else "Check --input."
        raise CheckpointError(
            f"the input {path} cannot be read", seen=error.strerror or error, remedy=remedy
        ) from error


def _fields(line: bytes, is_json: bool) -> Fields:
    if not is_json:
        try:
            text = line.decode().strip()
        except UnicodeDecodeError as error:
            raise UnusableLineError("no UTF-8") from error
        return {"prompt": text, "topic": text}
    try:
        fields = parse_json(line)
    except JsonTextError as error:
        raise UnusableLineError("no JSON") from error
    if not isinstance(fields, dict):
        raise UnusableLineError("no JSON object")
    return fields


def _prompt(fields: Fields) -> Prompt:
    if "messages" in fields:
        return _conversation(fields["messages"], _answers(fields))
    if "instruction" in fields:
        return _instruction(fields)
    if "prompt" in fields:
        return Prompt(messages=question(_text(fields, "prompt")), answers=_answers(fields))
    raise UnusableLineError("no prompt, no messages, no instruction")


def _answers(fields: Fields) -> tuple[str, ...]:
    if "answers" in fields:
        found = fields["answers"]
        if not isinstance(found, list) or not all(map(_is_text, found)):
            raise UnusableLineError("answers are no list of texts")
        return tuple(found)
    return (_text(fields, "completion"),) if "completion" in fields else ()


def _conversation(messages: object, answers: tuple[str, ...]) -> Prompt:
    """Takes an answer at the end for one of those that the line brings."""
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise UnusableLineError("messages are no list of objects")
    kept: list[Message] = []
    for message in messages:
        if message.get("role") not in _ROLES or not _is_text(message.get("content")):
            raise UnusableLineError("a message without a known role or without a text")
        kept.append({"role": message["role"], "content": message["content"]})
    if kept and kept[-1]["role"] == "assistant":
        answers = answers or (kept[-1]["content"],)
        kept.pop()
    if not kept or kept[-1]["role"] != "user":
        raise UnusableLineError("messages that do not end with the user")
    return Prompt(messages=tuple(kept), answers=answers)


def _instruction(fields: Fields) -> Prompt:
    """Reads Alpaca's form, `instruction` with `input` and `output`, and that of Self-Instruct,
    where the first of `instances` has the last two."""
    instances = fields.get("instances")
    given: object = instances[0] if isinstance(instances, list) and instances else fields
    if not isinstance(given, dict):
        raise UnusableLineError("instances are no list of objects")
    asked, more, said = _text(fields, "instruction"), given.get("input"), given.get("output")
    text = f"{asked}\n\n{more}" if _is_text(more) else asked
    return Prompt(messages=question(text), answers=(str(said),) if _is_text(said) else ())


def _topic(fields: Fields) -> Topic:
    entities = fields.get("entities", [])
    if not isinstance(entities, list) or not all(map(_is_text, entities)):
        raise UnusableLineError("entities are no list of texts")
    return Topic(name=_text(fields, "topic").strip(), entities=tuple(dict.fromkeys(entities)))


def _text(fields: Fields, name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not _is_text(value):
        raise UnusableLineError(f"{name} is no text")
    return value


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and is_unicode(value)


def _prompt_key(prompt: Prompt, num_answers: int) -> str:
    """Returns the same for prompts whose words differ in spaces alone, and that have the same first
    answers."""
    said = [(one["role"], one["content"].split()) for one in prompt.messages]
    return json.dumps([said, prompt.answers[:num_answers]])
