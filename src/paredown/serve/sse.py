"""Sends server-sent events: an answer piece by piece."""

import json
from collections.abc import AsyncIterator, Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paredown.errors import ParedownError
from paredown.serve.disconnect import run_until_disconnect
from paredown.serve.errors import ClientGoneError, HttpError, as_http_error

DONE = b"data: [DONE]\n\n"


class EventStream(Response):
    """Sends each body of `bodies` as one event, then [DONE]. `close` is always called, even when
    the client hangs up. (The connection cuts off a client that stops reading.) A failure becomes a
    last event."""

    media_type = "text/event-stream"

    def __init__(
        self, bodies: AsyncIterator[dict[str, object]], *, close: Callable[[], None]
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._bodies = bodies
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await run_until_disconnect(receive, self._send_all(send))
        except ClientGoneError:
            pass
        finally:
            self._close()

    async def _send_all(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        async for event in self._events():
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": DONE, "more_body": False})

    async def _events(self) -> AsyncIterator[bytes]:
        try:
            async for body in self._bodies:
                yield encode_event(body)
        except ParedownError as error:
            yield encode_event(as_http_error(error).body())
        except HttpError as error:
            yield encode_event(error.body())


def encode_event(body: dict[str, object]) -> bytes:
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return b"data: " + text.encode() + b"\n\n"
