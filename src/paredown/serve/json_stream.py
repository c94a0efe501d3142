"""Streams a JSON document while it is written, if it is too long to write at once."""

import json
from collections.abc import AsyncIterator, Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paredown.serve.disconnect import run_until_disconnect
from paredown.serve.errors import ClientGoneError


class JsonStream(Response):
    """Sends the document. `close` is always called, even when the client hangs up."""

    media_type = "application/json"

    def __init__(self, pieces: AsyncIterator[list[str]], *, close: Callable[[], None]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._pieces = pieces
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
        async for piece in self._pieces:
            body = "".join(piece).encode()
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def to_json(value: object) -> str:
    """Returns `value` in the format of starlette's JSONResponse."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
