"""Sends server-sent events: an answer piece by piece."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from paredown.serve.answers.event import Event, encode_events
from paredown.serve.answers.piece_stream import PieceStream

_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def event_stream(
    batches: AsyncIterator[Sequence[Event]],
    *,
    close: Callable[[], None],
    headers: Mapping[str, str] | None = None,
) -> PieceStream:
    """Returns the response that sends the events; those of a batch are written together."""
    return PieceStream(
        _encoded(batches),
        media_type="text/event-stream",
        close=close,
        headers={**_HEADERS, **(headers or {})},
    )


async def _encoded(batches: AsyncIterator[Sequence[Event]]) -> AsyncIterator[bytes]:
    async for events in batches:
        yield encode_events(events)
