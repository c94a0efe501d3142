"""TurnLog: the events of a turn since they were last taken, each kind in as few as can be."""

from paredown.models.chat.turn_event import (
    CallArguments,
    CallStart,
    Content,
    Reasoning,
    TurnEvent,
)


class DamagedCallError(Exception):
    """Text that looked like a call and is none, or none that can be answered."""


class TurnLog:
    """`num_calls` counts the calls that were told. After `max_calls` of them, further calls are
    not."""

    def __init__(self, max_calls: int | None = None) -> None:
        self.num_calls = 0
        self._max_calls = max_calls
        self._is_muted = False
        self._events: list[TurnEvent] = []

    def take(self) -> list[TurnEvent]:
        events, self._events = self._events, []
        return events

    def content(self, text: str) -> None:
        last = self._events[-1] if self._events else None
        if isinstance(last, Content):
            self._events[-1] = Content(last.text + text)
        elif text:
            self._events.append(Content(text))

    def reasoning(self, text: str) -> None:
        last = self._events[-1] if self._events else None
        if isinstance(last, Reasoning):
            self._events[-1] = Reasoning(last.text + text)
        elif text:
            self._events.append(Reasoning(text))

    def start_call(self, name: str) -> None:
        self._is_muted = self.num_calls == self._max_calls
        if self._is_muted:
            return
        self._events.append(CallStart(self.num_calls, name))
        self.num_calls += 1

    def arguments(self, text: str) -> None:
        """Adds a piece of the arguments of the call that was started last."""
        if self._is_muted:
            return
        index = self.num_calls - 1
        last = self._events[-1] if self._events else None
        if isinstance(last, CallArguments):
            self._events[-1] = CallArguments(index, last.text + text)
        elif text:
            self._events.append(CallArguments(index, text))
