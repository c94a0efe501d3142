"""Pieces of a stream go straight to the connection, in the framing that HTTP wants."""

import json
import socket

import pytest

from drivers.running_server import running_server
from paredown.serve.doors import connection

BODY = {"prompt": "x", "max_tokens": 20, "ignore_eos": True, "stream": True, "temperature": 0}


@pytest.fixture(scope="module")
def server():
    with running_server() as running:
        yield running


def answered(server, version: str, *, close: bool = True) -> bytes:
    """Returns all that comes back for one request, until the server closes."""
    body = json.dumps(BODY).encode()
    head = f"POST /v1/completions HTTP/{version}\r\nHost: localhost\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    head += "Connection: close\r\n\r\n" if close else "\r\n"
    host, port = server.url.removeprefix("http://").split(":")
    found = b""
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(head.encode() + body)
        while part := client.recv(65_536):
            found += part
            if not close and found.endswith(b"0\r\n\r\n"):
                break
    return found


def unchunked(body: bytes) -> bytes:
    parts = []
    while True:
        size, _, body = body.partition(b"\r\n")
        num = int(size, 16)
        if not num:
            assert body == b"\r\n"
            return b"".join(parts)
        parts.append(body[:num])
        assert body[num : num + 2] == b"\r\n"
        body = body[num + 2 :]


def told(events: bytes) -> str:
    lines = [line[6:] for line in events.split(b"\n\n") if line.startswith(b"data: {")]
    assert events.endswith(b"data: [DONE]\n\n")
    return "".join(json.loads(line)["choices"][0]["text"] for line in lines)


def test_chunks_are_whole_and_add_up_whether_they_go_straight_or_not(server, monkeypatch):
    head, _, body = answered(server, "1.1").partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head.lower()
    straight = told(unchunked(body))
    monkeypatch.setattr(connection.Connection, "_offer_chunks", lambda self: None)
    _, _, body = answered(server, "1.1").partition(b"\r\n\r\n")
    assert told(unchunked(body)) == straight


def test_a_client_of_http_1_0_gets_no_chunks(server):
    head, _, body = answered(server, "1.0").partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    _, _, other = answered(server, "1.1").partition(b"\r\n\r\n")
    assert told(body) == told(unchunked(other))


def test_the_connection_serves_another_request_afterwards(server):
    for _ in range(2):
        assert answered(server, "1.1", close=False).endswith(b"0\r\n\r\n")
    whole = {**BODY, "stream": False}
    with server.client.stream("POST", "/v1/completions", json=BODY) as stream:
        assert "[DONE]" in "".join(stream.iter_text())
    assert server.client.post("/v1/completions", json=whole).status_code == 200
