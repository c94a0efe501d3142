"""MessageFormat: an answer as the Messages API has it, a list of content blocks.

Blocks open and close one after the other.
"""

from collections.abc import Iterator, Sequence

import pydantic_core

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
from paredown.serve.answers.output_item import new_id
from paredown.serve.answers.piece import Piece
from paredown.serve.answers.turn import Block
from paredown.serve.answers.usage import Body, Usage
from paredown.serve.answers.whole_answer import WholeAnswer
from paredown.serve.errors import HttpError
from paredown.serve.message_error import message_error

_EMPTY_TEXT: Body = {"type": "text", "text": ""}
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class MessageFormat:
    """The number of the prompt's tokens is told before the answer begins."""

    def __init__(self, model_name: str, num_prompt_tokens: int) -> None:
        self._message: Body = {
            "id": new_id("msg"),
            "type": "message",
            "role": "assistant",
            "model": model_name,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": Usage(num_prompt_tokens).message_body(),
        }
        self._num_blocks = 0
        # The kind of the open block.
        self._open: type[TurnEvent] | None = None
        self._stop: Body = {"stop_reason": None, "stop_sequence": None}

    def begin(self) -> list[Event]:
        return [_event("message_start", message=self._message)]

    def add(self, piece: Piece) -> list[Event]:
        events = [told for event in piece.events for told in self._add(event)]
        if piece.finish_reason is not None:
            self._stop = _stop(piece.finish_reason, piece.stop)
        return events

    def end(self, usage: Usage) -> list[Event]:
        # A model that says nothing says an empty text.
        events = [] if self._num_blocks else self._opened(Content, _EMPTY_TEXT)
        return [
            *events,
            *self._closed(),
            _event("message_delta", delta=self._stop, usage=usage.message_body()),
            _event("message_stop"),
        ]

    def fail(self, error: HttpError) -> list[Event]:
        return [Event.of(message_error(error), "error")]

    def whole(
        self, answers: Sequence[WholeAnswer], rows: Sequence[LogprobRows], usage: Usage
    ) -> Iterator[str]:
        (answer,) = answers
        assert answer.finish_reason is not None
        yield to_json(
            {
                **self._message,
                "content": [whole_block(one) for one in answer.turn.blocks] or [_EMPTY_TEXT],
                **_stop(answer.finish_reason, answer.stop),
                "usage": usage.message_body(),
            }
        )

    def _add(self, event: TurnEvent) -> list[Event]:
        match event:
            case CallStart(name=name):
                block: Body = {"type": "tool_use", "id": new_id("toolu"), "name": name, "input": {}}
                return self._opened(CallArguments, block)
            case CallArguments(text=text):
                return [self._delta({"type": "input_json_delta", "partial_json": text})]
            case Content(text=text):
                delta: Body = {"type": "text_delta", "text": text}
                return [*self._moved_on(Content, _EMPTY_TEXT), self._delta(delta)]
            case Reasoning(text=text):
                delta = {"type": "thinking_delta", "thinking": text}
                empty: Body = {"type": "thinking", "thinking": "", "signature": ""}
                return [*self._moved_on(Reasoning, empty), self._delta(delta)]

    def _moved_on(self, kind: type[TurnEvent], block: Body) -> list[Event]:
        return [] if self._open is kind else self._opened(kind, block)

    def _opened(self, kind: type[TurnEvent], block: Body) -> list[Event]:
        events = self._closed()
        self._open = kind
        start = _event("content_block_start", index=self._num_blocks, content_block=block)
        self._num_blocks += 1
        return [*events, start]

    def _closed(self) -> list[Event]:
        if self._open is None:
            return []
        events = []
        if self._open is Reasoning:
            # What the API proves reasoning with; clients wait for it.
            events.append(self._delta({"type": "signature_delta", "signature": ""}))
        self._open = None
        return [*events, _event("content_block_stop", index=self._num_blocks - 1)]

    def _delta(self, delta: Body) -> Event:
        return _event("content_block_delta", index=self._num_blocks - 1, delta=delta)


def whole_block(block: Block) -> Body:
    """Returns a block of a whole message."""
    match block.kind:
        case "content":
            return {"type": "text", "text": block.text}
        case "reasoning":
            return {"type": "thinking", "thinking": block.text, "signature": ""}
        case "call":
            fields = {"name": block.name, "input": as_input(block.text)}
            return {"type": "tool_use", "id": new_id("toolu"), **fields}


def as_input(arguments: str) -> object:
    """Returns arguments as an object: of those that were cut off, as much as there is."""
    try:
        found = pydantic_core.from_json(arguments, allow_partial=True, allow_inf_nan=False)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _stop(finish_reason: str, stop: str | None) -> Body:
    if finish_reason == "stop" and stop is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": stop}
    return {"stop_reason": _STOP_REASONS[finish_reason], "stop_sequence": None}


def _event(name: str, **fields: object) -> Event:
    return Event.of({"type": name, **fields}, name)
