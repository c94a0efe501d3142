"""TaggedCallReader: reads calls whose arguments stand in a tag each, and writes them as JSON."""

import json
from collections.abc import Generator

from paredown.models.chat.arriving_text import ArrivingText, Asking, Reading
from paredown.models.chat.called_tools import CalledTools, types_of
from paredown.models.chat.json_arguments import held_at_end
from paredown.models.chat.named_call_reader import read_name
from paredown.models.chat.tool_format import TaggedCall, lines_of
from paredown.models.chat.turn_log import DamagedCallError, TurnLog

_MAX_KEY_CHARS = 256
# How models write constants that JSON writes otherwise.
_CONSTANTS = {"True": "true", "False": "false", "None": "null"}
_TEXT = frozenset(["string"])


class TaggedCallReader:
    """A value's type is what the tool's schema says. A text is told as it comes, any other value
    when it is whole. A value ends at the first end tag that is followed by another argument or by
    the end of the call, so that it may itself hold the tag."""

    def __init__(
        self,
        text: ArrivingText,
        log: TurnLog,
        body: TaggedCall,
        tools: CalledTools,
        ends: tuple[str, ...],
    ) -> None:
        self._text = text
        self._log = log
        self._tools = tools
        self._after_name = lines_of(body.after_name)
        self._key_start = body.argument.start.strip()
        self._key_end = body.after_key.strip()
        self._value_end = body.argument.end.strip()
        self._ends = ends
        self._has_line = (body.after_key.endswith("\n"), body.argument.end.startswith("\n"))

    def read(self) -> Reading:
        """Reads the call that is next. Raises DamagedCallError; what is held then is no part of a
        call. After damage, or a cut between two arguments, the call has the arguments before it."""
        text, log = self._text, self._log
        name = yield from read_name(text, self._tools)
        if not (yield from text.take_lines(self._after_name)):
            raise DamagedCallError
        if not (yield from self._goes_on()):
            raise DamagedCallError
        log.start_call(name)
        log.arguments("{")
        text.hold()
        num_arguments = 0
        try:
            while True:
                yield from text.skip_whitespace()
                if not (yield from text.take(self._key_start)):
                    break
                key = yield from self._key()
                before = ", " if num_arguments else ""
                log.arguments(f"{before}{json.dumps(key, ensure_ascii=False)}: ")
                if not (yield from self._value(self._tools.argument_types(name, key))):
                    return
                text.hold()
                num_arguments += 1
        except DamagedCallError:
            log.arguments("}")
            raise
        log.arguments("}")

    def _goes_on(self) -> Asking:
        """Returns whether an argument or the end of the call is next, or the text ends."""
        text, start = self._text, self._text.position
        yield from text.skip_whitespace()
        found = text.is_ended
        for marker in (self._key_start, *self._ends):
            found = found or (yield from text.stands(marker))
        text.go_back(start)
        return found

    def _key(self) -> Generator[None, None, str]:
        text = self._text
        while (end := text.text.find(self._key_end, text.at)) < 0:
            if text.is_whole or len(text.text) - text.at > _MAX_KEY_CHARS:
                raise DamagedCallError
            yield
        key = text.text[text.at : end].strip()
        if len(key) > _MAX_KEY_CHARS or "\n" in key:
            raise DamagedCallError
        text.at = end + len(self._key_end)
        return key

    def _value(self, types: frozenset[str]) -> Asking:
        """Reads a value and tells it. Returns whether its end was there; what was cut inside a
        value stays as it is."""
        yield from self._skip_first_line()
        parts: list[str] = []
        is_text = types == _TEXT
        if is_text:
            self._log.arguments('"')
        while True:
            piece, is_end = yield from self._piece()
            if is_text:
                self._log.arguments(json.dumps(piece, ensure_ascii=False)[1:-1])
            else:
                parts.append(piece)
            if is_end is not None:
                break
        if is_end:
            self._log.arguments('"' if is_text else _as_json("".join(parts), types))
        else:
            self._log.arguments("".join(parts))
        return is_end

    def _skip_first_line(self) -> Reading:
        yield from self._text.peek()
        if self._has_line[0]:
            yield from self._text.take("\n")

    def _piece(self) -> Generator[None, None, tuple[str, bool | None]]:
        """Reads a piece of a value. Returns it and whether the value ended with its tag (True),
        with the text (False), or goes on (None)."""
        text = self._text
        while True:
            end = text.text.find(self._value_end, text.at)
            if end >= 0:
                return (yield from self._piece_before(end))
            piece = text.text[text.at :]
            if text.is_whole:
                text.at = len(text.text)
                return piece, False
            num_held = held_at_end(piece, (self._value_end, "\n" + self._value_end))
            if len(piece) > num_held:
                piece = piece[: len(piece) - num_held]
                text.at += len(piece)
                text.hold()
                return piece, None
            yield

    def _piece_before(self, end: int) -> Generator[None, None, tuple[str, bool | None]]:
        """Reads what stands before a tag that may end the value, or with it if it does not."""
        text = self._text
        start, text.at = text.at, end + len(self._value_end)
        num_read = text.at - start
        piece = text.text[start:end]
        # Text is held, so that what was read so far stays where it is.
        if (yield from self._goes_on()):
            if self._has_line[1]:
                piece = piece.removesuffix("\n")
            return piece, True
        return text.text[text.at - num_read : text.at], None


def _as_json(text: str, types: frozenset[str]) -> str:
    """Returns the JSON of a value, which is a text where it is no value of the other types."""
    text = text if "string" in types else text.strip()
    bare = _CONSTANTS.get(text.strip(), text.strip())
    try:
        value = json.loads(bare)
    except (ValueError, RecursionError):
        return json.dumps(text, ensure_ascii=False)
    if types_of(value) & types and not isinstance(value, str):
        return bare
    return json.dumps(text, ensure_ascii=False)
