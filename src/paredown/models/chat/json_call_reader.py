"""JsonCallReader: reads calls that are JSON objects with a name and arguments."""

import json
from collections.abc import Generator

from paredown.models.chat.arriving_text import ArrivingText, Reading
from paredown.models.chat.called_tools import CalledTools
from paredown.models.chat.json_arguments import JsonArguments
from paredown.models.chat.json_scan import JsonScan
from paredown.models.chat.tool_format import JsonCall
from paredown.models.chat.turn_log import DamagedCallError, TurnLog

# Names that models write in place of each other.
_ARGUMENTS = ("arguments", "parameters")
_WRAPPER = "function"


class JsonCallReader:
    """Reads an object, or an array of objects whatever the template writes: models choose either.
    Keys come in any order; arguments before the name are told when the name is known."""

    def __init__(
        self,
        text: ArrivingText,
        log: TurnLog,
        body: JsonCall,
        tools: CalledTools,
        ends: tuple[str, ...],
    ) -> None:
        self._text = text
        self._log = log
        self._tools = tools
        self._arguments = JsonArguments(text, log, ends)
        self._name_key = body.name_key
        self._argument_keys = {body.arguments_key, *_ARGUMENTS}
        self._wrapper_keys = {body.wrapper_key, _WRAPPER}
        # Those of the object under way.
        self._name: str | None = None
        self._pending: str | None = None
        self._is_started = False

    def read(self) -> Reading:
        """Reads what is next. Raises DamagedCallError; what is held then is no part of a call."""
        text = self._text
        is_array = yield from text.take("[")
        while True:
            yield from text.skip_whitespace()
            yield from self._call()
            text.hold()
            if not is_array:
                return
            yield from text.skip_whitespace()
            if (yield from text.take("]")):
                text.hold()
                return
            if not (yield from text.take(",")):
                raise DamagedCallError

    def _call(self) -> Reading:
        self._name, self._pending, self._is_started = None, None, False
        yield from self._object()
        if not self._is_started:
            self._start("{}")

    def _object(self) -> Reading:
        text = self._text
        if not (yield from text.take("{")):
            raise DamagedCallError
        while True:
            yield from text.skip_whitespace()
            key = yield from self._string()
            yield from text.skip_whitespace()
            if not (yield from text.take(":")):
                raise DamagedCallError
            yield from text.skip_whitespace()
            yield from self._member(key)
            yield from text.skip_whitespace()
            if (yield from text.take("}")):
                return
            if not (yield from text.take(",")):
                raise DamagedCallError

    def _member(self, key: str) -> Reading:
        first = yield from self._text.peek()
        if key in self._wrapper_keys and first == "{":
            yield from self._object()
        elif key == self._name_key and self._name is None:
            self._name = yield from self._string()
            if self._name not in self._tools:
                raise DamagedCallError
            if self._pending is not None:
                self._start(self._pending)
        elif key in self._argument_keys and not self._is_started:
            yield from self._read_arguments(first)
        else:
            yield from self._value()

    def _read_arguments(self, first: str) -> Reading:
        if self._name is not None and first == "{":
            self._is_started = True
            yield from self._arguments.read(self._name)
            return
        value = yield from self._value()
        if first == '"':  # JSON in JSON
            value = _text_of(value).strip()
        self._pending = "{}" if value == "null" else value
        if self._name is not None:
            self._start(self._pending)

    def _start(self, arguments: str) -> None:
        """Starts the call with all of its arguments. Raises DamagedCallError."""
        if self._name is None or not _is_object(arguments):
            raise DamagedCallError
        self._is_started = True
        self._log.start_call(self._name)
        self._log.arguments(arguments)
        self._text.hold()

    def _string(self) -> Generator[None, None, str]:
        if (yield from self._text.peek()) != '"':
            raise DamagedCallError
        return _text_of((yield from self._value()))

    def _value(self) -> Generator[None, None, str]:
        """Reads a value and returns its JSON."""
        text, scan = self._text, JsonScan()
        parts: list[str] = []
        while True:
            start = text.at
            text.at = scan.read(text.text, start)
            parts.append(text.text[start : text.at])
            if scan.is_whole:
                return "".join(parts)
            if scan.is_damaged or text.is_whole:
                raise DamagedCallError
            yield


def _text_of(value: str) -> str:
    try:
        text = json.loads(value)
    except ValueError as error:
        raise DamagedCallError from error
    assert isinstance(text, str)
    return text


def _is_object(value: str) -> bool:
    try:
        return isinstance(json.loads(value), dict)
    except (ValueError, RecursionError):
        return False
