"""Clients of /v1/embeddings in a process of their own, which cost the machine little.

    python -m benchmarks.encoder_client HOST PORT NUM_CLIENTS SECONDS < bodies.json

Each client sends one body after the other on a connection that it keeps, and reads whole answers.
`bodies.json` is a list of strings. Printed is {"num_answers", "seconds"}: from the first request to
the last answer.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle


@dataclass
class Tally:
    """The answers that the clients have seen."""

    end_s: float
    num_answers: int = 0
    last_s: float = 0.0
    failure: str = ""


@dataclass
class Client(asyncio.Protocol):
    """One connection. Ends at the first answer that is not 200."""

    requests: Iterator[bytes]
    tally: Tally
    done: asyncio.Event = field(default_factory=asyncio.Event)
    received: bytearray = field(default_factory=bytearray)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport
        transport.write(next(self.requests))

    def data_received(self, data: bytes) -> None:
        self.received += data
        head_end = self.received.find(b"\r\n\r\n") + 4
        if head_end < 4:
            return
        head = bytes(self.received[:head_end]).lower()
        begin = head.find(b"content-length: ") + len("content-length: ")
        end = head_end + int(head[begin : head.index(b"\r\n", begin)])
        if len(self.received) < end:
            return
        if not head.startswith(b"http/1.1 200"):
            self.tally.failure = bytes(self.received).decode(errors="replace")
            self.transport.close()
            return
        del self.received[:end]
        self.tally.num_answers += 1
        self.tally.last_s = time.monotonic()
        if self.tally.last_s < self.tally.end_s:
            self.transport.write(next(self.requests))
        else:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.done.set()


async def run(host: str, port: int, num_clients: int, seconds: float, bodies: list[str]) -> Tally:
    """Runs the clients. Raises RuntimeError for an answer that is no vector."""
    head = f"POST /v1/embeddings HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json"
    requests = cycle(
        f"{head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode() for body in bodies
    )
    tally, loop = Tally(time.monotonic() + seconds), asyncio.get_running_loop()
    clients = []
    for _ in range(num_clients):
        _, client = await loop.create_connection(lambda: Client(requests, tally), host, port)
        clients.append(client)
    await asyncio.gather(*(client.done.wait() for client in clients))
    if tally.failure:
        raise RuntimeError(tally.failure)
    return tally


if __name__ == "__main__":
    began_s = time.monotonic()
    host, port, num_clients, seconds = sys.argv[1:]
    found = asyncio.run(
        run(host, int(port), int(num_clients), float(seconds), json.load(sys.stdin))
    )
    told = {
        "num_answers": found.num_answers,
        "seconds": found.last_s - found.end_s + float(seconds),
    }
    print(json.dumps(told))
