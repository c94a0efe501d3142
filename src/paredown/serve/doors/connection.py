"""One HTTP connection, which waits for its client only for limited times.

    the head of a request     HEAD_TIMEOUT_S, then 408
    its body                  serve/intake/body.py; REST_TIMEOUT_S where the answer is there already
    the next request          KEEP_ALIVE_S
    that an answer is taken   WRITE_TIMEOUT_S without a byte, then it is cut off

When places are short, a waiting connection gives way to a new one (serve/doors/places.py).
"""

import asyncio
import resource
import socket
import struct
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from paredown.serve.doors.places import HEALTH_PLACES, Places
from paredown.serve.doors.turns import Turns
from paredown.serve.errors import HttpError

MAX_CONNECTIONS = 2048
# The key of a scope under which a connection offers to write chunks of an answer's body.
CHUNK_WRITER = "paredown.chunk_writer"
ChunkWriter = Callable[[bytes], Awaitable[None]]
# asyncio accepts this many per turn, and a refused one is closed some turns later.
BACKLOG = 128
HEAD_TIMEOUT_S = 30.0
# The time for the rest of a body whose request is already answered.
REST_TIMEOUT_S = 30.0
KEEP_ALIVE_S = 30
# The system takes no byte until about a third of its buffer (SEND_BUFFER_BYTES) is free. A client
# that reads less than a few hundred bytes a second therefore counts as reading nothing.
WRITE_TIMEOUT_S = 20.0
# How long a TLS connection that ends waits for its client's goodbye, which many never send.
GOODBYE_S = 0.5
# The system's buffer for an unread answer; the system doubles this value.
SEND_BUFFER_BYTES = 64 * 1024
MAX_HEAD_BYTES = 16 * 1024
# The limit of pipelined requests, which arrive before the previous answer.
MAX_AHEAD_BYTES = 16 * 1024
# The timeout of a connection beyond all places, which may only ask for /health.
_HEALTH_TIMEOUT_S = 2.0
# Files kept free for closing connections and for the process itself.
_RESERVED_FILES = HEALTH_PLACES + 4 * BACKLOG + 64
_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n"
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
_TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\n"
# SO_LINGER: on, with 0 seconds.
_NO_LINGER = struct.pack("ii", 1, 0)
_CLOSE = b"connection: close\r\ncontent-length: 0\r\n\r\n"


class Connection(H11Protocol):
    """uvicorn's connection with the timers above. It pauses writing as soon as any byte is left
    over, so that it holds at most one message of an answer. With TLS, `raw` is the transport below
    its own."""

    def __init__(
        self,
        places: Places,
        turns: Turns,
        *args: Any,
        raw: asyncio.Transport | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._raw = raw
        self._places = places
        self._turns = turns
        self._has_place = self._is_turn_due = False
        self._timers: dict[str, asyncio.TimerHandle] = {}
        # The bytes that the client had not taken when the write timer was set.
        self._num_untaken_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # A TLS transport would pause at 0 bytes, too.
        transport.set_write_buffer_limits(high=0 if self._raw is None else 1)
        self._has_place = self._places.take(self, self.client[0] if self.client else "")
        if self._has_place:
            self._watch_head()
        else:
            self.app = health_alone(self.app)
            self._set("head", _HEALTH_TIMEOUT_S, self._refuse, _TOO_MANY)

    def data_received(self, data: bytes) -> None:
        # Data that arrive in one piece are parsed in one piece, whatever the length.
        if self.conn.their_state is h11.IDLE and len(data) > MAX_HEAD_BYTES:
            ends = (data.find(end, 0, MAX_HEAD_BYTES) for end in (b"\r\n\r\n", b"\n\n"))
            if max(ends) < 0:
                self._refuse(_TOO_LONG)
                return
        super().data_received(data)

    def handle_events(self) -> None:
        """Handles events, in this round of the loop or a later one; uvicorn calls it. First
        requests do not wait for connections that have already had an answer."""
        if self._is_turn_due:
            return
        address = self.client[0] if self.client else ""
        group = (address, self._has_place, self.cycle is None)
        self._is_turn_due = True
        if not self._turns.take(self.loop, group, self._handle_events):
            self.flow.pause_reading()
            self._places.note(self, is_waiting=False)

    def _handle_events(self) -> None:
        self._is_turn_due = False
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        try:
            super().handle_events()
            self._offer_chunks()
        except Exception:
            # This is a bug, which the loop's handler reports. The connection is cut so that no
            # client waits.
            self._cut_off()
            raise
        if self.conn.their_state is not h11.SEND_BODY:
            self._forget("rest")
            if self.flow.read_paused and not self.transport.is_closing():
                self._read_ahead()
        self._note()

    def _offer_chunks(self) -> None:
        """Lets the application write the chunks of an answer itself. It begins in a later round."""
        cycle = self.cycle
        if cycle is None or cycle.response_started:
            return
        if cycle.scope["http_version"] == "1.1" and cycle.scope["method"] != "HEAD":
            scope = cast(Scope, cycle.scope)
            scope[CHUNK_WRITER] = partial(self._write_chunk, cycle)

    async def _write_chunk(self, cycle: RequestResponseCycle, data: bytes) -> None:
        """Does what `cycle.send` does with a piece of a body that has no Content-Length, without
        the layers between: they take as long as all else that is done for a token."""
        if self.flow.write_paused and not cycle.disconnected:
            await self.flow.drain()
        if not cycle.disconnected:
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _read_ahead(self) -> None:
        """Handles data after a complete request: they are read up to a limit, because only reading
        shows when a client hangs up."""
        if len(self.conn.trailing_data[0]) > MAX_AHEAD_BYTES:
            self._cut_off()
        else:
            self.flow.resume_reading()

    def send_400_response(self, msg: str) -> None:
        """Sends a 400 unless an answer has already begun, where it would be a protocol error."""
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self._cut_off()
        self._part()

    def shutdown(self) -> None:
        """Ends the connection once it is idle; uvicorn calls it when the server stops."""
        super().shutdown()
        self._part()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._part()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._has_place:
            self.transport.close()
        # uvicorn's own timer would stop at the body's next byte, even if more is missing.
        elif self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self._set("rest", REST_TIMEOUT_S, self._close)
        self._note()
        self._part()

    def pause_writing(self) -> None:
        """Handles data that were not taken at once."""
        super().pause_writing()
        self._watch_write()
        self._note()

    def resume_writing(self) -> None:
        """Handles that all data were taken."""
        super().resume_writing()
        self._forget("write")
        self._note()

    def connection_lost(self, exc: Exception | None) -> None:
        for name in tuple(self._timers):
            self._forget(name)
        self._unset_keepalive_if_required()
        self._places.give_back(self)
        super().connection_lost(exc)

    def give_way(self) -> None:
        """Ends the connection in favour of another one."""
        if self._count_untaken_bytes() or self.transport.is_closing():
            self._cut_off()
        elif self.cycle is None or not self.cycle.response_started:
            self._refuse(_TOO_MANY)
        else:
            self._close()

    def _note(self) -> None:
        """Reports whether it waits for its client, and since when for a head."""
        if self._has_place:
            self._watch_head()
            waits_for_bytes = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
            self._places.note(self, is_waiting=waits_for_bytes or self.flow.write_paused)

    def _watch_head(self) -> None:
        """Times a head from its first byte, or the connection's start, to its last byte."""
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._forget("head")
        elif "head" not in self._timers and self.timeout_keep_alive_task is None:
            self._set("head", HEAD_TIMEOUT_S, self._refuse, _TOO_LATE)

    def _watch_write(self) -> None:
        self._num_untaken_bytes = self._count_untaken_bytes()
        self._set("write", WRITE_TIMEOUT_S, self._check_write)

    def _check_write(self) -> None:
        if self._count_untaken_bytes() < self._num_untaken_bytes:
            self._watch_write()
        else:
            self._cut_off()

    def _count_untaken_bytes(self) -> int:
        below = 0 if self._raw is None else self._raw.get_write_buffer_size()
        return self.transport.get_write_buffer_size() + below

    def _cut_off(self) -> None:
        """Ends the connection at once. The system must also drop its unsent data, which it would
        otherwise offer for minutes."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.transport.abort()

    def _set(self, name: str, delay_s: float, call: Any, *args: Any) -> None:
        self._forget(name)
        self._timers[name] = self.loop.call_later(delay_s, call, *args)

    def _forget(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _refuse(self, head: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(head + _CLOSE)
            self._close()

    def _close(self) -> None:
        self.transport.close()
        self._part()

    def _part(self) -> None:
        """Ends a TLS connection that was closed, as soon as the client has all bytes."""
        if self._raw is not None and self.transport.is_closing():
            self._set("goodbye", GOODBYE_S, self._check_goodbye)

    def _check_goodbye(self) -> None:
        assert self._raw is not None
        if self._count_untaken_bytes():
            self._part()
        else:
            self._raw.abort()


def health_alone(app: ASGIApp) -> ASGIApp:
    """Restricts the application to /health; anything else is 503. Each answer closes the connection
    and says so."""

    async def narrowed(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_last(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], CLOSE_HEADER]}
            await send(message)

        if scope["path"] == "/health":
            await app(scope, receive, send_last)
            return
        error = HttpError(
            503, "all connections of this server are taken", code="too_many_connections"
        )
        await error.response()(scope, receive, send_last)

    return narrowed


def allowed_connections() -> int:
    """Returns MAX_CONNECTIONS, or fewer where the process may not open enough files. It raises the
    soft limit up to the hard one as needed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + _RESERVED_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return MAX_CONNECTIONS
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(soft // 2, soft - _RESERVED_FILES)
