"""Silent clients: what they hold is bounded, in number and in time."""

import resource
import socket
import time

import pytest

from drivers.running_server import running_server
from paredown.serve.doors import connection
from paredown.serve.doors.connection import allowed_connections

HEADS = [b"", b"GET /he", b"GET /health HTTP/1.1\r\nHost: localhost\r\n"]


def connect(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def trickle(sock: socket.socket, seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        sock.sendall(b"x")
        time.sleep(0.02)


def read_all(sock: socket.socket) -> bytes:
    return b"".join(iter(lambda: sock.recv(4096), b""))


@pytest.mark.parametrize("head", HEADS)
def test_a_head_that_does_not_come_is_given_up(monkeypatch, head):
    monkeypatch.setattr(connection, "HEAD_TIMEOUT_S", 0.2)
    with running_server() as server, connect(server.url) as sock:
        sock.sendall(head)
        assert read_all(sock).startswith(b"HTTP/1.1 408 ")


def test_a_head_that_trickles_is_given_up_on_a_used_connection_too(monkeypatch):
    monkeypatch.setattr(connection, "HEAD_TIMEOUT_S", 0.3)
    with running_server() as server, connect(server.url) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        while b"ready" not in received:
            received += sock.recv(4096)
        assert received.startswith(b"HTTP/1.1 200 ")
        start_s = time.monotonic()
        sock.settimeout(0.05)
        answer = b""
        while not answer:
            assert time.monotonic() - start_s < 5
            sock.sendall(b"G")
            try:
                answer = sock.recv(4096)
            except TimeoutError:
                continue
        assert answer.startswith(b"HTTP/1.1 408 ")


def test_the_time_of_the_head_is_not_the_time_of_the_answer(monkeypatch):
    monkeypatch.setattr(connection, "HEAD_TIMEOUT_S", 0.1)
    with running_server() as server, connect(server.url) as sock:
        body = b'{"prompt": "a", "max_tokens": 2}'
        sock.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        time.sleep(0.3)
        sock.sendall(body)
        assert read_all(sock).startswith(b"HTTP/1.1 200 ")


def test_a_body_that_does_not_end_is_given_up_once_its_answer_is_there(monkeypatch):
    """It trickles, so that the connection is never idle."""
    monkeypatch.setattr(connection, "REST_TIMEOUT_S", 0.3)
    with running_server() as server, connect(server.url) as sock:
        sock.sendall(b"POST /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
        assert sock.recv(4096).startswith(b"HTTP/1.1 405 ")
        with pytest.raises(OSError, match=r"reset|pipe"):
            trickle(sock, seconds=5)


def test_a_body_that_ends_after_its_answer_leaves_the_connection_as_it_was(monkeypatch):
    monkeypatch.setattr(connection, "REST_TIMEOUT_S", 0.2)
    with running_server() as server, connect(server.url) as sock:
        sock.sendall(b"POST /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n")
        assert sock.recv(4096).startswith(b"HTTP/1.1 405 ")
        sock.sendall(b"abc")
        time.sleep(0.4)
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b"HTTP/1.1 200 " in read_all(sock)


@pytest.mark.parametrize(
    ("soft", "hard", "allowed", "raised"),
    [
        (1 << 20, 1 << 20, 2048, None),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 2048, None),
        (1024, resource.RLIM_INFINITY, 2048, 3008),
        (1024, 1 << 20, 2048, 3008),
        (1024, 1024, 512, 1024),
        (2000, 2000, 1040, 2000),
        (64, 64, 32, 64),
    ],
)
def test_connections_are_as_many_as_files_can_be_open(monkeypatch, soft, hard, allowed, raised):
    asked = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: asked.append(limits))
    assert allowed_connections() == allowed
    assert asked == ([] if raised is None else [(raised, hard)])
