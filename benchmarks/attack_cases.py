"""Attacks on a server, each by four clients at full speed.

Each case of docs/internals/security.md is run over HTTP. A client is a coroutine that runs until it
is cancelled. Bodies are prepared in advance, so that the attackers use little of the processor.
"""

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

NUM_CLIENTS = 4
# Per client.
_NUM_SILENT = 512
_NUM_DEAF = 64
_PAUSE_S = 0.05
# If the server cuts a client off or has no place for it, the attack has not failed.
_LOST = (OSError, asyncio.IncompleteReadError, TimeoutError)


@dataclass(frozen=True)
class Target:
    """Where a client connects to and from. Each client has its own address where possible, such as
    all of 127.0.0.0/8 on Linux."""

    port: int
    source: str = ""

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        source = (self.source, 0) if self.source else None
        return await asyncio.open_connection("127.0.0.1", self.port, local_addr=source)


Client = Callable[[Target], Awaitable[None]]
# Turns a good model's folder into a hostile one.
Spoil = Callable[[Path], None]


@dataclass(frozen=True, kw_only=True)
class Attack:
    """An attack. `client` runs until it is cancelled. `spoil` makes the served model hostile, and
    `options` go to the server."""

    case: str
    what: str
    client: Client
    spoil: Spoil | None = None
    options: tuple[str, ...] = ()


def request(
    path: str, body: bytes, *, host: str = "127.0.0.1", kind: str = "application/json"
) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def completion(**fields: object) -> bytes:
    return request("/v1/completions", json.dumps(fields, separators=(",", ":")).encode())


def sends(*requests: bytes) -> Client:
    """Sends the requests in sequence, each after the answer to the previous one."""

    async def client(target: Target) -> None:
        for one in cycle(requests):
            await _once(target, one, reads=True)

    return client


def hangs_up(*requests: bytes) -> Client:
    """Sends the requests and disconnects at once."""

    async def client(target: Target) -> None:
        for one in cycle(requests):
            await _once(target, one, reads=False)
            await asyncio.sleep(_PAUSE_S)

    return client


def silent(first: bytes, num_connections: int) -> Client:
    """Keeps `num_connections` open on which `first` was sent; lost ones are reopened."""

    async def hold(target: Target) -> None:
        while True:
            with suppress(*_LOST):
                reader, writer = await target.open()
                try:
                    writer.write(first)
                    await reader.read()
                finally:
                    writer.transport.abort()
            await asyncio.sleep(_PAUSE_S)

    async def client(target: Target) -> None:
        await asyncio.gather(*(hold(target) for _ in range(num_connections)))

    return client


def deaf(one: bytes, num_connections: int) -> Client:
    """Sends the request repeatedly on `num_connections` connections without reading."""

    async def hold(target: Target) -> None:
        while True:
            with suppress(*_LOST):
                reader, writer = await target.open()
                reader._transport.pause_reading()  # type: ignore[attr-defined]
                try:
                    while not writer.transport.is_closing():
                        writer.write(one)
                        # wait_for may lose a cancellation when what it waits for is done.
                        async with asyncio.timeout(60):
                            await writer.drain()
                        await asyncio.sleep(0)
                finally:
                    writer.transport.abort()
            await asyncio.sleep(_PAUSE_S)

    async def client(target: Target) -> None:
        await asyncio.gather(*(hold(target) for _ in range(num_connections)))

    return client


async def _once(target: Target, one: bytes, *, reads: bool) -> None:
    with suppress(*_LOST):
        reader, writer = await target.open()
        try:
            writer.write(one.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
            await writer.drain()
            if reads:
                while await reader.read(1 << 16):
                    pass
        finally:
            writer.transport.abort()
        return
    await asyncio.sleep(_PAUSE_S)


def _spoil_template(folder: Path) -> None:
    loop = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    _change(folder / "tokenizer_config.json", lambda config: config | {"chat_template": loop})


def _spoil_decoder(folder: Path) -> None:
    """Installs a backtracking regular expression for the model's output."""
    replace = {"type": "Replace", "pattern": {"Regex": "(a+)+!"}, "content": ""}

    def change(tokenizer: dict[str, object]) -> dict[str, object]:
        decoders = [tokenizer["decoder"], replace]
        return tokenizer | {"decoder": {"type": "Sequence", "decoders": decoders}}

    _change(folder / "tokenizer.json", change)


def _change(path: Path, change: Callable[[dict[str, object]], dict[str, object]]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def spoiled(model: Path, folder: Path, spoil: Spoil) -> Path:
    """Returns a spoiled copy of the model."""
    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("verification.json", ".*"))
    spoil(folder)
    return folder


def attacks(token_a: int) -> list[Attack]:
    """Returns all attacks. `token_a` is the model's token "a"."""
    words = completion(prompt="x", bad_words=[[1]] * 490_000)
    prompts = completion(prompt=["x"] * 490_000)
    keys = completion(prompt="x", **{f"k{number:06d}": 1 for number in range(150_000)})
    text = completion(prompt="word " * 380_000, max_tokens=1)
    chat = request(
        "/v1/chat/completions",
        json.dumps({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}).encode(),
    )
    letters = completion(prompt="a", allowed_token_ids=[token_a], max_tokens=200, ignore_eos=True)
    many = completion(prompt=["x"] * 64, n=2, max_tokens=400, logprobs=20, ignore_eos=True)
    name = b"GET /v1/models/" + b"x" * 60_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    rebound = request("/v1/completions", b'{"prompt":"x","max_tokens":400}', host="evil.example")
    endless = completion(prompt="x", max_tokens=2**30, ignore_eos=True)
    sinks = ("--attention-sinks", "4", "--attention-window", "252")
    return [
        Attack(case="S07 words", what="2 MB bodies of bad_words", client=sends(words)),
        Attack(case="S07 prompts", what="2 MB bodies of prompts", client=sends(prompts)),
        Attack(case="S07 keys", what="2 MB bodies of unknown keys", client=sends(keys)),
        Attack(case="S08 text", what="1.9 MB of text", client=sends(text)),
        Attack(case="S08 gone", what="1.9 MB of text, then gone", client=hangs_up(text)),
        Attack(
            case="S11", what="a template without end", client=sends(chat), spoil=_spoil_template
        ),
        Attack(
            case="S12", what="a decoder that fails", client=sends(letters), spoil=_spoil_decoder
        ),
        Attack(case="S15 silent", what="silent clients", client=silent(b"GET /he", _NUM_SILENT)),
        Attack(case="S15 deaf", what="clients that read nothing", client=deaf(name, _NUM_DEAF)),
        Attack(case="S16", what="64 prompts, n 2, logprobs 20", client=sends(many)),
        Attack(case="S17 log", what="bad requests", client=sends(b"\0\r\n\r\n")),
        Attack(
            case="S17 tokens", what="answers of 2^30 tokens", client=sends(endless), options=sinks
        ),
        Attack(case="S18", what="a page by another name", client=sends(rebound)),
    ]
