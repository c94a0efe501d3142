"""Sends a response whose body is made while it is sent."""

from collections.abc import AsyncIterator, Callable, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paredown.serve.doors.connection import CHUNK_WRITER, ChunkWriter
from paredown.serve.errors import ClientGoneError
from paredown.serve.intake.disconnect import run_until_disconnect


class PieceStream(Response):
    """Sends `pieces` one after the other. `close` is always called, even when the client hangs up.
    (The connection cuts off a client that stops reading.)"""

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        *,
        media_type: str,
        close: Callable[[], None],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(headers=headers, media_type=media_type)
        del self.headers["content-length"]
        self._pieces = pieces
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await run_until_disconnect(receive, self._send_all(scope, send))
        except ClientGoneError:
            pass
        finally:
            self._close()

    async def _send_all(self, scope: Scope, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        write: ChunkWriter | None = scope.get(CHUNK_WRITER)
        async for piece in self._pieces:
            if write is None:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            elif piece:
                await write(piece)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
