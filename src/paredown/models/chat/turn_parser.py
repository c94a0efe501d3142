"""TurnParser: reads a model's turn while it comes, and tells text, reasoning and calls apart.

Whatever the pieces of `feed`, the same text gives the same events once neighbouring pieces of a
kind are joined. Nothing is lost: what looked like a call and is none comes out as content, with its
markers. Whitespace beside a marker belongs to the marker.

A call is told when it is certain: the tool is known and its arguments begin. What a client was
told cannot be taken back, so damage after that shows in the arguments: they are what the model
wrote, and where it wrote no JSON, or was cut, they do not parse. A streamed answer and a whole one
agree in this.
"""

import re
from collections.abc import Mapping, Sequence

from paredown.models.chat.arriving_text import ArrivingText, Asking, Reading
from paredown.models.chat.called_tools import CalledTools
from paredown.models.chat.json_arguments import held_at_end
from paredown.models.chat.json_call_reader import JsonCallReader
from paredown.models.chat.named_call_reader import NamedCallReader
from paredown.models.chat.reasoning_format import ReasoningFormat
from paredown.models.chat.tagged_call_reader import TaggedCallReader
from paredown.models.chat.tool_format import JsonCall, NamedCall, ToolFormat, lines_of
from paredown.models.chat.turn_event import CallArguments as CallArguments
from paredown.models.chat.turn_event import CallStart as CallStart
from paredown.models.chat.turn_event import Content as Content
from paredown.models.chat.turn_event import Reasoning as Reasoning
from paredown.models.chat.turn_event import TurnEvent as TurnEvent
from paredown.models.chat.turn_log import DamagedCallError, TurnLog


class TurnParser:
    """One turn. Without tools, or without a format of them, nothing is taken for a call. Unless
    calls may be `parallel`, those after the first are read and not told."""

    def __init__(
        self,
        *,
        tool_format: ToolFormat | None,
        reasoning: ReasoningFormat | None,
        tools: Sequence[Mapping[str, object]],
        reasoning_open: bool,
        parallel: bool = True,
    ) -> None:
        self._text = ArrivingText()
        self._log = TurnLog(max_calls=None if parallel else 1)
        self._format = tool_format if tools else None
        self._reasoning_format = reasoning
        self._is_reasoning = reasoning_open
        called = CalledTools(tools)
        self._reader = None if self._format is None else self._make_reader(self._format, called)
        self._triggers = () if self._format is None else self._format.triggers
        self._trigger = re.compile("|".join(map(re.escape, self._triggers)) or r"(?!)")
        self._steps: Reading | None = self._turn()

    @property
    def num_calls(self) -> int:
        """Returns how many calls were told."""
        return self._log.num_calls

    def feed(self, text: str) -> list[TurnEvent]:
        """Returns what is certain after `text`, the next piece of the turn."""
        self._text.add(text)
        self._advance()
        return self._log.take()

    def finish(self) -> list[TurnEvent]:
        """Returns what was held back, at the end of the turn."""
        self._text.is_whole = True
        self._advance()
        return self._log.take()

    def _advance(self) -> None:
        if self._steps is not None and next(self._steps, self) is self:
            self._steps = None
        self._text.drop_read()

    def _make_reader(
        self, form: ToolFormat, tools: CalledTools
    ) -> JsonCallReader | NamedCallReader | TaggedCallReader:
        ends = (*form.call.end_lines, *form.section.end_lines)
        if isinstance(form.body, JsonCall):
            return JsonCallReader(self._text, self._log, form.body, tools, ends)
        if isinstance(form.body, NamedCall):
            return NamedCallReader(self._text, self._log, form.body, tools, ends)
        return TaggedCallReader(self._text, self._log, form.body, tools, ends)

    def _turn(self) -> Reading:
        yield from self._reason()
        is_after_call = False
        if self._format is not None and isinstance(self._format.body, JsonCall):
            is_after_call = yield from self._bare_calls()
        while (yield from self._content(is_after_call)):
            is_after_call = yield from self._section()

    def _reason(self) -> Reading:
        """Reads the reasoning, if the turn begins with it."""
        text, form = self._text, self._reasoning_format
        if form is None:
            return
        text.hold()
        yield from text.skip_whitespace()
        is_marked = yield from text.take(form.start.strip())
        if not is_marked and not self._is_reasoning:
            text.go_back(0)
            text.release()
            return
        yield from text.skip_whitespace()
        text.release()
        end = form.end.strip()
        while True:
            found = text.text.find(end, text.at)
            if found >= 0:
                self._log.reasoning(text.text[text.at : found].rstrip())
                text.at = found + len(end)
                break
            piece = text.text[text.at :]
            if text.is_whole:
                self._log.reasoning(piece)
                text.at = len(text.text)
                return
            piece = piece[: len(piece) - held_at_end(piece, (end,))].rstrip()
            self._log.reasoning(piece)
            text.at += len(piece)
            yield
        yield from text.skip_whitespace()

    def _content(self, is_after_call: bool) -> Asking:
        """Reads content up to the start of a call, and holds the whitespace before it. Returns
        False at the end of the text. Whitespace alone behind a call is no content."""
        text = self._text
        text.release()
        while True:
            found = self._trigger.search(text.text, text.at)
            piece = text.text[text.at : found.start() if found else len(text.text)]
            if found is None and not text.is_whole and self._format is not None:
                piece = piece[: len(piece) - held_at_end(piece, self._triggers)]
            if found or not text.is_whole:
                piece = piece.rstrip() if self._format is not None else piece
            elif is_after_call and not piece.strip():
                piece = ""
            self._log.content(piece)
            is_after_call = is_after_call and not piece
            text.at += len(piece)
            if found:
                text.hold()
                yield from text.skip_whitespace()
                return True
            if text.is_whole:
                text.at = len(text.text)
                return False
            yield

    def _bare_calls(self) -> Asking:
        """Reads calls that nothing announces: JSON at the beginning of the turn. Small models leave
        the tags out that their template has. Returns what `_section` returns."""
        text = self._text
        start = text.position
        text.hold()
        yield from text.skip_whitespace()
        is_bare = (yield from text.peek()) in ("{", "[")
        for trigger in self._triggers:
            is_bare = is_bare and not (yield from text.stands(trigger))
        if is_bare:
            return (yield from self._section(is_bare=True))
        text.go_back(start)
        text.release()
        return False

    def _section(self, *, is_bare: bool = False) -> Asking:
        """Reads the calls that begin here; what is held is the whitespace before them. Returns
        whether what follows stands behind a call."""
        text, said = self._text, ""
        start = text.position
        try:
            yield from self._calls(is_bare)
        except DamagedCallError:
            if text.position == start:  # past what looked like a marker
                found = self._trigger.match(text.text, text.at)
                text.at += len(found[0]) if found else 0
            said = text.held
            self._log.content(said)
            text.hold()
            if not said:
                yield from self._ends()
        text.release()
        return not said

    def _calls(self, is_bare: bool) -> Reading:
        form, text = self._format, self._text
        assert form is not None
        assert self._reader is not None
        is_section = False
        if not is_bare:
            yield from text.take_lines(lines_of(form.other_start))
            lines = form.section.start_lines
            is_section = bool(lines) and (yield from text.take_lines(lines))
            if not (yield from self._call_start()):
                raise DamagedCallError
        while True:
            yield from text.skip_whitespace()
            yield from self._reader.read()
            text.hold()
            yield from self._call_end()
            text.hold()
            if is_bare or form.is_bare:
                is_next = yield from self._next_object()
            else:
                is_next = is_section and (yield from self._next_call())
            if not is_next:
                break
        if is_section:
            yield from text.take_lines(form.section.end_lines)

    def _call_start(self) -> Asking:
        """Reads what stands before a call, or the last line of it."""
        assert self._format is not None
        lines = self._format.call.start_lines
        return (yield from self._text.take_lines(lines)) or (
            yield from self._text.take_lines(lines[-1:])
        )

    def _call_end(self) -> Reading:
        """Reads what stands behind a call, or a line of it; models leave it out."""
        assert self._format is not None
        lines = self._format.call.end_lines
        if not (yield from self._text.take_lines(lines)):
            yield from self._text.take_lines(lines[:1])
            yield from self._text.take_lines(lines[-1:])

    def _next_call(self) -> Asking:
        """Reads up to the next call of a section, and returns whether there is one."""
        form, text = self._format, self._text
        assert form is not None
        if not form.call.start_lines:
            return (yield from self._next_object())
        start = text.position
        yield from text.take_lines(lines_of(form.between))
        is_next = yield from self._call_start()
        if not is_next:
            text.go_back(start)
        return is_next

    def _next_object(self) -> Asking:
        """Does the same where nothing stands before a call."""
        form, text = self._format, self._text
        assert form is not None
        start = text.position
        yield from text.take_lines(lines_of(form.between))
        yield from text.skip_whitespace()
        is_next = yield from text.stands("{")
        if not is_next:
            text.go_back(start)
        return is_next

    def _ends(self) -> Reading:
        """Reads the markers behind a call that was damaged after its start."""
        assert self._format is not None
        yield from self._call_end()
        yield from self._text.take_lines(self._format.section.end_lines)
