"""NamedCallReader: reads calls that are a name, a marker and the JSON of the arguments."""

import re
from collections.abc import Generator

from paredown.models.chat.arriving_text import ArrivingText, Reading
from paredown.models.chat.called_tools import CalledTools
from paredown.models.chat.json_arguments import JsonArguments
from paredown.models.chat.tool_format import NamedCall, lines_of
from paredown.models.chat.turn_log import DamagedCallError, TurnLog

_ID_CHARACTER = re.compile(r"[A-Za-z0-9_-]")


class NamedCallReader:
    def __init__(
        self,
        text: ArrivingText,
        log: TurnLog,
        body: NamedCall,
        tools: CalledTools,
        ends: tuple[str, ...],
    ) -> None:
        self._text = text
        self._log = log
        self._tools = tools
        self._arguments = JsonArguments(text, log, ends)
        self._after_name = lines_of(body.after_name)
        self._id_start = body.id_start.strip()

    def read(self) -> Reading:
        """Reads the call that is next. Raises DamagedCallError; what is held then is no part of a
        call."""
        text = self._text
        name = yield from read_name(text, self._tools)
        if self._id_start:
            yield from self._skip_id()
        if not (yield from text.take_lines(self._after_name)):
            raise DamagedCallError
        yield from text.skip_whitespace()
        yield from self._arguments.read(name)

    def _skip_id(self) -> Reading:
        text = self._text
        if (yield from text.take(self._id_start)):
            while _ID_CHARACTER.fullmatch((yield from text.peek())):
                text.at += 1


def read_name(text: ArrivingText, tools: CalledTools) -> Generator[None, None, str]:
    """Reads the name of a tool. Raises DamagedCallError where none is next."""
    yield from text.skip_whitespace()
    for name in tools.names:
        if (yield from text.take(name)):
            return name
    raise DamagedCallError
