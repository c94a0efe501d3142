"""Event: one server-sent event of a stream, named or not."""

from collections.abc import Iterable
from typing import NamedTuple

from paredown.serve.answers.json_stream import to_json


class Event(NamedTuple):
    """`data` is JSON on one line."""

    data: str
    name: str | None = None

    @classmethod
    def of(cls, body: object, name: str | None = None) -> "Event":
        return cls(to_json(body), name)


def encode_events(events: Iterable[Event]) -> bytes:
    """Returns the events as a client receives them, one after the other."""
    return "".join(map(_written, events)).encode()


def _written(event: Event) -> str:
    if event.name is None:
        return f"data: {event.data}\n\n"
    return f"event: {event.name}\ndata: {event.data}\n\n"
