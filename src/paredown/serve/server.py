"""The process that serves: listen, answer until told to stop, drain, go."""

import asyncio
import signal
import socket
from dataclasses import dataclass
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from paredown.engine.worker import Worker
from paredown.errors import ConfigError
from paredown.serve.connection import BACKLOG, Connection, allowed_connections

MAX_HEADER_BYTES = 64 * 1024
# After the drain: a step ends, the unfinished are answered. Only a step that hangs takes longer.
LAST_ANSWERS_S = 5


@dataclass(frozen=True, kw_only=True)
class Listen:
    """Where to listen, and how long answers under way may take once the server is told to stop."""

    host: str = "127.0.0.1"
    port: int = 8000
    drain_s: int = 30

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535 or self.drain_s < 0:
            raise ConfigError(
                "cannot listen there",
                seen=f"port {self.port}, drain_s {self.drain_s}",
                remedy="A port is 0 (any free one) to 65535, drain_s 0 or more seconds.",
            )

    def open_socket(self) -> socket.socket:
        """A bound socket; port 0 takes a free one. Raises ConfigError."""
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM
            )[0]
            # With the protocol named, asyncio turns Nagle's algorithm off. Without it the second
            # write of every answer waits 40 ms for the client's delayed acknowledgement.
            sock = socket.socket(family, kind, protocol)
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(address)
                sock.listen(BACKLOG)
            except BaseException:
                sock.close()
                raise
            return sock
        except (OSError, OverflowError, UnicodeError) as error:
            raise ConfigError(
                "cannot listen there",
                seen=f"{self.host} port {self.port}: {error}",
                remedy="Choose another --port (0 takes a free one) or --host.",
            ) from error


class Server(uvicorn.Server):
    """A signal makes it drain and return; it is not raised again, so the process can exit 0.

    After `drain_s` the worker is told to leave, and what is unfinished then is answered with 503.
    """

    def __init__(self, config: uvicorn.Config, worker: Worker, drain_s: int) -> None:
        super().__init__(config)
        self.stopped_by: int | None = None
        self._worker = worker
        self._drain_s = drain_s

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True
        self.stopped_by = sig

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stops accepting, waits for the answers under way."""
        leave = asyncio.get_running_loop().call_later(self._drain_s, self._worker.ask_to_stop)
        try:
            await super().shutdown(sockets)
        finally:
            leave.cancel()


def make_server(app: Starlette, worker: Worker, listen: Listen) -> Server:
    """The server of `app`, whose model `worker` runs."""
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        loop="asyncio",
        lifespan="on",
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        # The number of connections from which on 503 is the answer.
        limit_concurrency=allowed_connections() + 1,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=listen.drain_s + LAST_ANSWERS_S,
    )
    return Server(config, worker, listen.drain_s)
