"""A client in a process of its own that takes streams at once and costs little: it parses nothing.

    python -m benchmarks.stream_client < asked.json > times.json

asked.json   {"host", "port", "bodies": [JSON of a request, ...]}, one connection for each
times.json   {"start_s", "end_s", "cpu_s", "arrivals_s": [times of each stream's events]}: seconds
             of this machine's monotonic clock, and of this process on the processor
"""

import asyncio
import json
import sys
import time
from typing import Any

EVENT = b"data: "
END = b"0\r\n\r\n"


class StreamProtocol(asyncio.Protocol):
    """Sends one request and notes when its events come."""

    def __init__(self, request: bytes, done: "asyncio.Future[None]") -> None:
        self.arrivals_s: list[float] = []
        self._request = request
        self._done = done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now_s = time.monotonic()
        self.arrivals_s += [now_s] * data.count(EVENT)
        if data.endswith(END) and not self._done.done():
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(exc or ConnectionError("the stream was cut"))


async def run(host: str, port: int, bodies: list[Any]) -> dict[str, object]:
    loop = asyncio.get_running_loop()
    protocols, ends = list[StreamProtocol](), list[asyncio.Future[None]]()
    start_s, start_cpu_s = time.monotonic(), time.process_time()
    for body in bodies:
        text = json.dumps(body).encode()
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: {host}:{port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        )
        ends.append(loop.create_future())
        protocols.append(StreamProtocol(head.encode() + text, ends[-1]))
        await loop.create_connection(lambda: protocols[-1], host, port)
    await asyncio.gather(*ends)
    return {
        "start_s": start_s,
        "end_s": time.monotonic(),
        "cpu_s": time.process_time() - start_cpu_s,
        "arrivals_s": [one.arrivals_s for one in protocols],
    }


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    print(json.dumps(asyncio.run(run(asked["host"], asked["port"], asked["bodies"]))))
