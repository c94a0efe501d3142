"""TurnReader: finds out what the text of one answer is, piece by piece: visible text, reasoning or
a call of a tool."""

from collections.abc import Sequence
from typing import Protocol

from paredown.engine.request_output import RequestOutput
from paredown.models.chat.turn_event import CallStart, Content, Reasoning, TurnEvent
from paredown.models.chat.turn_parser import TurnParser


class TurnReader(Protocol):
    """The reader of one answer. Of its tokens, `num_reasoning_tokens` were reasoning."""

    num_reasoning_tokens: int

    def read(self, output: RequestOutput) -> list[TurnEvent]:
        """Returns the events of the answer's next output."""
        ...

    def finish_reason(self, output: RequestOutput) -> str | None:
        """Returns why the answer ended with this output; None where it goes on."""
        ...


class PlainReader:
    """Reads plain text: all of it is visible."""

    num_reasoning_tokens = 0

    def read(self, output: RequestOutput) -> list[TurnEvent]:
        return [Content(output.text)] if output.text else []

    def finish_reason(self, output: RequestOutput) -> str | None:
        return output.finish_reason


class ParsedReader:
    """Reads a turn whose format is known. Of an output with several tokens, those up to
    `reasoning_end_id` were reasoning; where no token ends reasoning, as many as its share of the
    characters."""

    def __init__(
        self, parser: TurnParser, *, is_reasoning: bool, reasoning_end_id: int | None
    ) -> None:
        self.num_reasoning_tokens = 0
        self._parser = parser
        self._is_reasoning = is_reasoning
        self._reasoning_end_id = reasoning_end_id

    def read(self, output: RequestOutput) -> list[TurnEvent]:
        events = self._parser.feed(output.text)
        if output.finish_reason is not None:
            events += self._parser.finish()
        self._count(output.token_ids, events)
        return events

    def finish_reason(self, output: RequestOutput) -> str | None:
        if output.finish_reason == "stop" and self._parser.num_calls:
            return "tool_calls"
        return output.finish_reason

    def _count(self, token_ids: list[int], events: Sequence[TurnEvent]) -> None:
        if not self._is_reasoning:
            self._is_reasoning = any(isinstance(one, Reasoning) for one in events)
        if not self._is_reasoning:
            return
        if self._reasoning_end_id in token_ids:
            self.num_reasoning_tokens += token_ids.index(self._reasoning_end_id) + 1
            self._is_reasoning = False
            return
        num_chars = [(isinstance(one, Reasoning), _num_chars(one)) for one in events]
        num_all = sum(num for _, num in num_chars)
        share = sum(num for is_thought, num in num_chars if is_thought) / num_all if num_all else 1
        self.num_reasoning_tokens += round(share * len(token_ids))
        self._is_reasoning = not events or isinstance(events[-1], Reasoning)


def _num_chars(event: TurnEvent) -> int:
    return len(event.name if isinstance(event, CallStart) else event.text)
