"""Exchange: one HTTP request over a connection of its own, read to its end or left before."""

import asyncio
import json
import socket
import struct
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """`data` is sent as it is, in two parts where `pause_s` lies between them. The client hangs up
    after `hang_up_after` bytes of the answer; None means that it reads all."""

    data: bytes
    hang_up_after: int | None = None
    pause_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Reply:
    """`status` is 0 where the server closed the connection without an answer, and None where the
    client hung up. `is_whole` says that the answer came to its end."""

    status: int | None
    headers: dict[str, str]
    body: bytes
    is_whole: bool

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def is_finished_stream(self) -> bool:
        return self.body.endswith(b"data: [DONE]\n\n")


def request(method: str, path: str, body: object = None, **headers: str) -> bytes:
    """Returns a request that asks for the connection to be closed after the answer. A body that is
    no bytes is sent as JSON."""
    content = b""
    told = {"Host": "127.0.0.1", "Connection": "close"}
    if body is not None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        told |= {"Content-Type": "application/json", "Content-Length": str(len(content))}
    told |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + content


async def exchange(port: int, asked: Exchange) -> Reply:
    """Returns the answer. Raises TimeoutError where there is no end after `TIMEOUT_S`."""
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            return await _ask(reader, writer, asked)
        finally:
            writer.close()


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: Exchange
) -> Reply:
    try:
        if asked.pause_s:
            half = len(asked.data) // 2
            writer.write(asked.data[:half])
            await asyncio.sleep(asked.pause_s)
            writer.write(asked.data[half:])
        else:
            writer.write(asked.data)
        if asked.hang_up_after is not None:
            if asked.hang_up_after:
                await reader.read(asked.hang_up_after)
            else:
                await writer.drain()
            _reset(writer)
            return Reply(status=None, headers={}, body=b"", is_whole=False)
        return await _read(reader)
    except (ConnectionError, asyncio.IncompleteReadError):
        # The server may cut off what is no HTTP, or sends more than it may.
        return Reply(status=0, headers={}, body=b"", is_whole=False)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Closes without waiting for anything, as a killed client's system does."""
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> Reply:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if headers.get("transfer-encoding") == "chunked":
        body, is_whole = _dechunked(await reader.read(-1))
    elif "content-length" in headers:
        body, is_whole = await reader.readexactly(int(headers["content-length"])), True
    else:
        body, is_whole = await reader.read(-1), True
    return Reply(status=int(first.split()[1]), headers=headers, body=body, is_whole=is_whole)


def _dechunked(data: bytes) -> tuple[bytes, bool]:
    """Returns the body, and whether its last chunk came."""
    body = bytearray()
    while True:
        line, found, data = data.partition(b"\r\n")
        if not found:
            return bytes(body), False
        size = int(line.split(b";")[0], 16)
        if not size:
            return bytes(body), True
        body += data[:size]
        data = data[size + 2 :]
