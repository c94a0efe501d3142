"""The serving process: listens, answers until it is told to stop, drains and exits."""

import asyncio
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event
from types import FrameType
from typing import Any, NoReturn, Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from paredown.errors import ConfigError
from paredown.serve.doors.certificates import Certificates
from paredown.serve.doors.connection import (
    BACKLOG,
    KEEP_ALIVE_S,
    MAX_HEAD_BYTES,
    SEND_BUFFER_BYTES,
    Connection,
    allowed_connections,
)
from paredown.serve.doors.cross_origin import NO_PAGES, CrossOrigins
from paredown.serve.doors.hosts import AllowedHosts, HostCheck, is_loopback
from paredown.serve.doors.key_check import KeyCheck
from paredown.serve.doors.key_ring import VARIABLE, KeyRing
from paredown.serve.doors.places import Places
from paredown.serve.doors.tls_door import TlsDoor
from paredown.serve.doors.turns import Turns
from paredown.serve.watch.log import LOG_CONFIG, tell_left_out
from paredown.serve.watch.request_log import RequestLog
from paredown.serve.watch.request_watch import RequestWatch

# After the drain, the current step ends and unfinished requests are answered. Only a step that
# hangs takes longer.
LAST_ANSWERS_S = 5
# How long a thread keeps the GIL while another wants it. With Python's default of 5 ms, a step
# waits that long whenever the event loop is busy with a client's data.
SWITCH_INTERVAL_S = 0.0005


# Files are looked at once a second.
TICKS_PER_LOOK = 10
FORCE_LOOK_S = 0.05


class Refreshed(Protocol):
    """Content of files that can be read again."""

    def refresh(self, *, at_once: bool = False) -> None: ...


class StoppableWorker(Protocol):
    """The part of a model's worker that the server uses."""

    def ask_to_stop(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Listen:
    """Where to listen, whom to let in, and how long current answers may take after a stop.

    Without `keys` nobody is asked for one; beyond loopback that must be meant (`is_open`). With
    `certificates` all connections are TLS. Pages of other sites may use the server if their origin
    is among `pages`.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    drain_s: int = 30
    address_connections: int = 512
    allowed_hosts: tuple[str, ...] = ()
    keys: KeyRing | None = None
    is_open: bool = False
    certificates: Certificates | None = None
    pages: CrossOrigins = NO_PAGES

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

    def check_exposure(self) -> None:
        """Raises ConfigError for a server that other machines reach, and that asks for no key."""
        if self.keys is None and not self.is_open and not is_loopback(self.address):
            raise ConfigError(
                "anyone who reaches this address could use the model",
                seen=f"--host {self.host} without an API key",
                remedy=f"Give --api-key-file FILE, or a key in {VARIABLE}. Where everybody may use "
                "it, say so with --no-api-key.",
            )

    def open_socket(self) -> socket.socket:
        """Returns a bound socket; port 0 takes a free one. Raises ConfigError."""
        self.check_exposure()
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
    """Drains and returns on a signal; a second one ends it at once. It does not raise the signal
    again, so the process can exit 0.

    After `drain_s` the worker is stopped, and unfinished requests are answered with 503. `files`
    are read again when they change.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        worker: StoppableWorker,
        stopping: Event,
        *,
        drain_s: int,
        files: Sequence[Refreshed],
        log: RequestLog | None,
    ) -> None:
        super().__init__(config)
        self.stopped_by: int | None = None
        # Ends the process, with the signal; without it a second one waits for the step under way.
        self.end_at_once: Callable[[int], NoReturn] | None = None
        self._worker = worker
        self._stopping = stopping
        self._drain_s = drain_s
        self._files = tuple(files)
        self._log = log
        self._reads_at_once = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handles a signal to stop."""
        if self.stopped_by is not None:
            self.force_exit = True
        self.should_exit = True
        self.stopped_by = sig
        self._stopping.set()

    def handle_hangup(self, sig: int, frame: FrameType | None) -> None:
        """Has files read again; without files it is a signal to stop, as from a terminal that was
        closed."""
        if self._files:
            self._reads_at_once = True
        else:
            self.handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # The engine's thread needs the GIL after every step of the model.
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Runs periodic work; uvicorn calls it ten times a second."""
        tell_left_out()
        if self._log is not None:
            self._log.tell_left_out()
        if self._reads_at_once or counter % TICKS_PER_LOOK == 0:
            at_once, self._reads_at_once = self._reads_at_once, False
            for one in self._files:
                one.refresh(at_once=at_once)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stops accepting and waits for the current answers."""
        self._stopping.set()
        leave = asyncio.get_running_loop().call_later(self._drain_s, self._worker.ask_to_stop)
        watching = asyncio.ensure_future(self._cut_off_when_forced())
        try:
            await super().shutdown(sockets)
        finally:
            leave.cancel()
            watching.cancel()
            if self._log is not None:
                self._log.tell_left_out(at_once=True)
            self._end_if_forced()

    async def _cut_off_when_forced(self) -> None:
        while not self.force_exit:
            await asyncio.sleep(FORCE_LOOK_S)
        self._worker.ask_to_stop()
        for connection in tuple(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(FORCE_LOOK_S)
        self._end_if_forced()

    def _end_if_forced(self) -> None:
        if self.force_exit and self.stopped_by is not None and self.end_at_once is not None:
            self.end_at_once(self.stopped_by)


def make_server(
    app: Starlette,
    worker: StoppableWorker,
    listen: Listen,
    *,
    log: RequestLog | None = None,
) -> Server:
    """Returns the server of `app`, whose model `worker` runs. `log` gets a line for each request.
    Raises ConfigError if the host does not exist."""
    app.state.has_keys = listen.keys is not None
    places, turns = Places(allowed_connections(), listen.address_connections), Turns()
    config = uvicorn.Config(
        doors(app, listen, log),
        http=partial(_protocol, listen, places, turns),  # type: ignore[arg-type]
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
    files = [one for one in (listen.keys, listen.certificates) if one is not None]
    return Server(
        config,
        worker,
        app.state.server.stopping,
        drain_s=listen.drain_s,
        files=files,
        log=log,
    )


def doors(app: Starlette, listen: Listen, log: RequestLog | None) -> ASGIApp:
    """Returns the application behind its doors: a request is first noted, then its host, its page
    and its key are checked."""
    inner: ASGIApp = app
    if listen.keys is not None:
        inner = KeyCheck(app, listen.keys, app.state.open_paths)
    inner = HostCheck(
        listen.pages.around(inner),
        AllowedHosts.of(listen.address, listen.allowed_hosts),
        listen.pages,
    )
    return RequestWatch(inner, log)


def _protocol(listen: Listen, places: Places, turns: Turns, **options: Any) -> asyncio.Protocol:
    """Returns what handles a new connection; `options` are uvicorn's."""
    if listen.certificates is None:
        return Connection(places, turns, **options)
    connections = options["server_state"].connections

    def connection(raw: asyncio.Transport) -> Connection:
        return Connection(places, turns, raw=raw, **options)

    return TlsDoor(connection, listen.certificates, places, connections)
