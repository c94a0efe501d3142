"""One HTTP connection, and what a silent client may hold: a place among the connections that the
process can have, for as long as the head of a request may take.
"""

import asyncio
import resource
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# Connections beyond these get 503 at once.
MAX_CONNECTIONS = 2048
# asyncio accepts as many in one turn, and a refused one is closed some turns later.
BACKLOG = 128
HEAD_TIMEOUT_S = 30.0
# For what is left of a body whose request has its answer already.
REST_TIMEOUT_S = 30.0
# Files that must stay free: connections on their way out, and what the process itself has open.
_RESERVED_FILES = 4 * BACKLOG + 64
_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n"
_TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\n"
_CLOSE = b"connection: close\r\ncontent-length: 0\r\n\r\n"


class Connection(H11Protocol):
    """uvicorn's, except that one too many is answered with 503 at once, not at its first request,
    that a head which does not come whole within HEAD_TIMEOUT_S is answered with 408, and that a
    body which does not come to its end within REST_TIMEOUT_S of its answer ends the connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head_timer: asyncio.TimerHandle | None = None
        self._rest_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self._refuse(_TOO_MANY)
        else:
            self._watch_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_head()
        if self.conn.their_state is not h11.SEND_BODY:
            self._forget_rest()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # uvicorn's own timer ends with the next byte of the body, whatever is missing then.
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self._forget_rest()
            self._rest_timer = self.loop.call_later(REST_TIMEOUT_S, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        self._forget_rest()
        super().connection_lost(exc)

    def _watch_head(self) -> None:
        """The time runs from a head's first byte, or the connection's start, to its last byte."""
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._forget_head()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._refuse, _TOO_LATE)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _forget_rest(self) -> None:
        if self._rest_timer is not None:
            self._rest_timer.cancel()
            self._rest_timer = None

    def _refuse(self, head: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(head + _CLOSE)
            self.transport.close()


def allowed_connections() -> int:
    """MAX_CONNECTIONS, or fewer where the process may not open as many files; the soft limit is
    raised as far as they need and the hard one lets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + _RESERVED_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return MAX_CONNECTIONS
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(soft // 2, soft - _RESERVED_FILES)
