"""ResponseFormat: an answer as the Responses API has it, a list of output items.

Items open and close one after the other. A whole reply is what the last event of a stream says.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from paredown.models.chat.turn_event import (
    CallArguments,
    CallStart,
    Content,
    Reasoning,
    TurnEvent,
)
from paredown.serve.answers.event import Event
from paredown.serve.answers.json_stream import to_json
from paredown.serve.answers.logprobs import LogprobRows
from paredown.serve.answers.output_item import OutputItem, new_id
from paredown.serve.answers.piece import Piece
from paredown.serve.answers.usage import Body, Usage
from paredown.serve.answers.whole_answer import WholeAnswer
from paredown.serve.errors import HttpError


@dataclass(frozen=True)
class FinishedResponse:
    """The response as the client has it, and what the model said in it."""

    body: Body
    items: Sequence[OutputItem]


class ResponseFormat:
    """`settings` are the fields of the request that a response repeats, and `keep` gets what became
    of it at the end."""

    def __init__(
        self, settings: Mapping[str, object], keep: Callable[[FinishedResponse], None]
    ) -> None:
        self._keep = keep
        self._body: Body = {
            "id": new_id("resp"),
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            **settings,
            "output": [],
            "usage": None,
        }
        self._items: list[OutputItem] = []
        self._open: OutputItem | None = None
        self._num_events = 0
        self._finish_reason: str | None = None

    def begin(self) -> list[Event]:
        return [
            self._event(f"response.{name}", response=self._body)
            for name in ("created", "in_progress")
        ]

    def add(self, piece: Piece) -> list[Event]:
        events = [told for event in piece.events for told in self._add(event)]
        self._finish_reason = piece.finish_reason or self._finish_reason
        return events

    def end(self, usage: Usage) -> list[Event]:
        events: list[Event] = []
        if not self._items:
            events += self._opened(OutputItem.message())
        is_cut = self._finish_reason == "length"
        events += self._closed("incomplete" if is_cut else "completed")
        status = "incomplete" if is_cut else "completed"
        self._body |= {
            "status": status,
            "completed_at": None if is_cut else int(time.time()),
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "output": [one.body() for one in self._items],
            "usage": usage.response_body(),
        }
        self._keep(FinishedResponse(self._body, self._items))
        return [*events, self._event(f"response.{status}", response=self._body)]

    def fail(self, error: HttpError) -> list[Event]:
        if self._open is not None:
            self._open.status = "incomplete"
        self._body |= {
            "status": "failed",
            "error": {
                "code": "server_error" if error.status >= 500 else "invalid_prompt",
                "message": error.message,
            },
            "output": [one.body() for one in self._items],
        }
        return [self._event("response.failed", response=self._body)]

    def whole(
        self, answers: Sequence[WholeAnswer], rows: Sequence[LogprobRows], usage: Usage
    ) -> Iterator[str]:
        (answer,) = answers
        self.add(answer.as_piece())
        self.end(usage)
        yield to_json(self._body)

    def _add(self, event: TurnEvent) -> list[Event]:
        match event:
            case CallStart(name=name):
                return self._moved_on(OutputItem.call(name))
            case Content() | Reasoning():
                kind = "message" if isinstance(event, Content) else "reasoning"
                events: list[Event] = []
                if self._open is None or self._open.kind != kind:
                    made = OutputItem.message() if kind == "message" else OutputItem.reasoning()
                    events = self._moved_on(made)
                return [*events, self._delta(event.text)]
            case CallArguments(text=text):
                return [self._delta(text)]

    def _delta(self, text: str) -> Event:
        item = self._open
        assert item is not None
        item.parts.append(text)
        return self._of_item(f"{item.event_stem}.delta", item, delta=text, **item.delta_fields())

    def _moved_on(self, item: OutputItem) -> list[Event]:
        return [*self._closed("completed"), *self._opened(item)]

    def _opened(self, item: OutputItem) -> list[Event]:
        self._items.append(item)
        self._open = item
        added = self._event(
            "response.output_item.added", output_index=len(self._items) - 1, item=item.body()
        )
        if item.kind == "function_call":
            return [added]
        part = item.part("")
        return [
            added,
            self._of_item("response.content_part.added", item, content_index=0, part=part),
        ]

    def _closed(self, status: str) -> list[Event]:
        """Returns the events that close the open item."""
        item, self._open = self._open, None
        if item is None:
            return []
        item.status = status
        events = [self._of_item(f"{item.event_stem}.done", item, **item.done_fields())]
        if item.kind != "function_call":
            part = item.part(item.text)
            events.append(
                self._of_item("response.content_part.done", item, content_index=0, part=part)
            )
        done = self._event(
            "response.output_item.done", output_index=len(self._items) - 1, item=item.body()
        )
        return [*events, done]

    def _of_item(self, kind: str, item: OutputItem, /, **fields: object) -> Event:
        place = {"item_id": item.id, "output_index": len(self._items) - 1}
        return self._event(kind, **place, **fields)

    def _event(self, kind: str, /, **fields: object) -> Event:
        number, self._num_events = self._num_events, self._num_events + 1
        return Event.of({"type": kind, "sequence_number": number, **fields}, kind)
