"""TlsDoor: a new connection until its TLS handshake is done. It has a place and a time limit, as
every connection has; then it hands over to a Connection."""

import asyncio
from collections.abc import Callable, MutableSet
from typing import Any

from paredown.serve.doors.certificates import Certificates
from paredown.serve.doors.connection import Connection
from paredown.serve.doors.places import Places

HANDSHAKE_TIMEOUT_S = 10.0
# How long a client may take to say goodbye, what is left of an answer included.
GOODBYE_TIMEOUT_S = 20.0


class TlsDoor(asyncio.Protocol):
    """`make` returns the connection over a raw transport. `connections` are uvicorn's, which are
    told to end when the server stops."""

    def __init__(
        self,
        make: Callable[[asyncio.Transport], Connection],
        certificates: Certificates,
        places: Places,
        connections: MutableSet[Any],
    ) -> None:
        self._make = make
        self._certificates = certificates
        self._places = places
        self._connections = connections
        # Kept, since the loop alone holds tasks weakly.
        self._task: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        # With TLS above it, it would keep 64 KB more of an answer.
        transport.set_write_buffer_limits(high=0)
        self._connections.add(self)
        peer = transport.get_extra_info("peername")
        self._places.take(self, peer[0] if isinstance(peer, tuple) else "")
        self._task = asyncio.get_running_loop().create_task(self._shake_hands())

    def give_way(self) -> None:
        """Ends the connection in favour of another one."""
        self.transport.abort()

    def shutdown(self) -> None:
        """Ends the connection; uvicorn calls it."""
        self.transport.abort()

    async def _shake_hands(self) -> None:
        early = _EarlyData()
        try:
            tls = await asyncio.get_running_loop().start_tls(
                self.transport,
                early,
                self._certificates.context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=GOODBYE_TIMEOUT_S,
            )
        except OSError:  # no TLS, too slow, or gone; ssl.SSLError is one
            self.transport.abort()
            return
        finally:
            self._connections.discard(self)
            self._places.give_back(self)
        if tls is not None and not early.is_lost:
            early.hand_over(tls, self._make(self.transport))


class _EarlyData(asyncio.Protocol):
    """Keeps data that come behind a handshake before anybody takes them."""

    def __init__(self) -> None:
        self.is_lost = False
        self._data = bytearray()

    def data_received(self, data: bytes) -> None:
        self._data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def hand_over(self, tls: asyncio.Transport, connection: Connection) -> None:
        tls.set_protocol(connection)
        connection.connection_made(tls)
        if self._data:
            connection.data_received(bytes(self._data))
