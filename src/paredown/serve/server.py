"""The serving process: listens, answers until it is told to stop, drains and exits."""

import asyncio
import signal
import socket
import sys
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, Protocol

import uvicorn
from starlette.applications import Starlette

from paredown.errors import ConfigError
from paredown.serve.doors.connection import (
    BACKLOG,
    KEEP_ALIVE_S,
    MAX_HEAD_BYTES,
    SEND_BUFFER_BYTES,
    Connection,
    allowed_connections,
)
from paredown.serve.doors.hosts import AllowedHosts, HostCheck
from paredown.serve.doors.places import Places
from paredown.serve.doors.turns import Turns
from paredown.serve.watch.log import LOG_CONFIG, tell_left_out

# After the drain, the current step ends and unfinished requests are answered. Only a step that
# hangs takes longer.
LAST_ANSWERS_S = 5
# How long a thread keeps the GIL while another wants it. With Python's default of 5 ms, a step
# waits that long whenever the event loop is busy with a client's data.
SWITCH_INTERVAL_S = 0.0005


class StoppableWorker(Protocol):
    """The part of a model's worker that the server uses."""

    def ask_to_stop(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Listen:
    """Where to listen, which hosts to accept, and how long current answers may take after a
    stop."""

    host: str = "127.0.0.1"
    port: int = 8000
    drain_s: int = 30
    address_connections: int = 512
    allowed_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535 or self.drain_s < 0:
            raise ConfigError(
                "cannot listen there",
                seen=f"port {self.port}, drain_s {self.drain_s}",
                remedy="A port is 0 (any free one) to 65535, drain_s 0 or more seconds.",
            )
        # Raises for invalid values before a model is loaded.
        AllowedHosts.of(self.host, self.allowed_hosts)
        Places(1, self.address_connections)

    @property
    def address(self) -> str:
        """Returns the address of `host`. Raises ConfigError."""
        return str(self._look_up()[4][0])

    def open_socket(self) -> socket.socket:
        """Returns a bound socket; port 0 takes a free one. Raises ConfigError."""
        # With an explicit protocol, asyncio turns Nagle's algorithm off. Otherwise the second write
        # of every answer waits 40 ms for the client's delayed acknowledgement.
        family, kind, protocol, _, address = self._look_up()
        try:
            sock = socket.socket(family, kind, protocol)
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                # Accepted connections inherit it.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
                sock.bind(address)
                sock.listen(BACKLOG)
            except BaseException:
                sock.close()
                raise
            return sock
        except (OSError, OverflowError) as error:
            raise self._error(error) from error

    def _look_up(self) -> Any:
        try:
            return socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
        except (OSError, OverflowError, UnicodeError) as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> ConfigError:
        return ConfigError(
            "cannot listen there",
            seen=f"{self.host} port {self.port}: {error}",
            remedy="Choose another --port (0 takes a free one) or --host.",
        )


class Server(uvicorn.Server):
    """Drains and returns on a signal. It does not raise the signal again, so the process can exit
    0.

    After `drain_s` the worker is stopped, and unfinished requests are answered with 503.
    """

    def __init__(self, config: uvicorn.Config, worker: StoppableWorker, drain_s: int) -> None:
        super().__init__(config)
        self.stopped_by: int | None = None
        self._worker = worker
        self._drain_s = drain_s

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True
        self.stopped_by = sig

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # The engine's thread needs the GIL after every step of the model.
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Runs periodic work; uvicorn calls it ten times a second."""
        tell_left_out()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stops accepting and waits for the current answers."""
        leave = asyncio.get_running_loop().call_later(self._drain_s, self._worker.ask_to_stop)
        try:
            await super().shutdown(sockets)
        finally:
            leave.cancel()


def make_server(app: Starlette, worker: StoppableWorker, listen: Listen) -> Server:
    """Returns the server of `app`, whose model `worker` runs. Raises ConfigError if the host does
    not exist."""
    hosts = AllowedHosts.of(listen.address, listen.allowed_hosts)
    places = Places(allowed_connections(), listen.address_connections)
    config = uvicorn.Config(
        HostCheck(app, hosts),
        http=partial(Connection, places, Turns()),  # type: ignore[arg-type]
        ws="none",
        loop="asyncio",
        lifespan="on",
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        log_config=LOG_CONFIG,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=listen.drain_s + LAST_ANSWERS_S,
    )
    return Server(config, worker, listen.drain_s)
