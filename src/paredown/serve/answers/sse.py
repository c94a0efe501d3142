"""Sends server-sent events: an answer piece by piece."""

from collections.abc import AsyncIterator, Callable

from paredown.errors import ParedownError
from paredown.serve.answers.json_stream import to_json
from paredown.serve.answers.piece_stream import PieceStream
from paredown.serve.errors import HttpError, as_http_error

DONE = b"data: [DONE]\n\n"
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def event_stream(
    bodies: AsyncIterator[dict[str, object]], *, close: Callable[[], None]
) -> PieceStream:
    """Returns the response that sends each body as one event, then [DONE]. A failure becomes the
    last event before it."""
    events = _events(bodies)
    return PieceStream(events, media_type="text/event-stream", close=close, headers=_HEADERS)


async def _events(bodies: AsyncIterator[dict[str, object]]) -> AsyncIterator[bytes]:
    try:
        async for body in bodies:
            yield encode_event(body)
    except ParedownError as error:
        yield encode_event(as_http_error(error).body())
    except HttpError as error:
        yield encode_event(error.body())
    yield DONE


def encode_event(body: dict[str, object]) -> bytes:
    return b"data: " + to_json(body).encode() + b"\n\n"
