"""S18: a page in a browser cannot use a server on loopback, whatever name it comes by."""

import json
import socket

import pytest

from drivers.running_server import Running, running_server
from paredown.serve.doors import hosts as hosts_file

BODY = json.dumps({"prompt": "x", "max_tokens": 2}).encode()
PATHS = ["/health", "/metrics", "/v1/models", "/v1/models/toy", "/v1/completions", "/nothing"]


@pytest.fixture(scope="module")
def server():
    with running_server() as running:
        yield running


def answer(server: Running, head: str, body: bytes = b"") -> tuple[int, str]:
    """The status and the whole of what is answered to a head written by hand."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        sock.sendall(head.replace("\n", "\r\n").encode("latin-1") + b"\r\n\r\n" + body)
        received = b"".join(iter(lambda: sock.recv(1 << 16), b"")).decode()
    return int(received.split(" ")[1]), received


def get(server: Running, path: str, *headers: str, version: str = "1.1") -> tuple[int, str]:
    lines = [f"GET {path} HTTP/{version}", *headers, "Connection: close"]
    return answer(server, "\n".join(lines))


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:1", "localhost.", "127.0.0.1", "127.0.0.1:8000", "[::1]", "[::1]:80"],
)
def test_its_own_names_are_served(server, host):
    assert get(server, "/health", f"Host: {host}")[0] == 200


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "evil.example.localhost",
        "127.0.0.1.evil.example",
        "localhost@evil.example",
        "evil.example@localhost",
        "evil.example#localhost",
        "192.168.1.1",
        "127.0.0.1:80:80",
        "[::2]",
        "",
        "\x1b[31mred",
        "x" * 15_000,
    ],
    ids=lambda host: repr(host)[:30],
)
def test_other_names_are_403_on_every_path(server, path, host):
    status, received = get(server, path, f"Host: {host}")
    assert status == 403
    assert len(received) < 1500
    assert "\x1b" not in received
    assert "--allowed-host" in received
    assert '"code":"host_not_allowed"' in received


def test_no_host_and_several(server):
    assert get(server, "/health")[0] == 400
    assert get(server, "/health", version="1.0")[0] == 403
    assert get(server, "/health", "Host: localhost", version="1.0")[0] == 200
    assert get(server, "/health", "Host: localhost", "Host: evil.example")[0] == 400


def test_a_target_in_absolute_form_names_the_server_too(server):
    for target, host, status in (
        ("http://localhost/health", "localhost", 200),
        ("HTTP://127.0.0.1:8000/health", "localhost", 200),
        ("http://localhost", "localhost", 404),
        ("http://evil.example/health", "localhost", 403),
        ("http://localhost/health", "evil.example", 403),
        ("http://localhost@evil.example/health", "localhost", 403),
        ("http://evil.example%2flocalhost/health", "localhost", 403),
        ("ftp://localhost/health", "localhost", 404),
        ("//evil.example/health", "localhost", 404),
    ):
        assert get(server, target, f"Host: {host}")[0] == status, target


def completion(server: Running, *headers: str) -> tuple[int, str]:
    head = "\n".join(
        [
            "POST /v1/completions HTTP/1.1",
            "Host: localhost",
            "Connection: close",
            f"Content-Length: {len(BODY)}",
            *headers,
        ]
    )
    return answer(server, head, BODY)


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "https://evil.example:8000", "null", "file://", "", "localhost"],
)
def test_a_page_of_another_site_cannot_post(server, origin):
    status, received = completion(server, "Content-Type: application/json", f"Origin: {origin}")
    assert status == 403
    assert '"code":"origin_not_allowed"' in received


@pytest.mark.parametrize("origin", ["http://localhost:8000", "http://127.0.0.1", "http://[::1]:80"])
def test_a_page_of_its_own_may(server, origin):
    headers = ("Content-Type: application/json", f"Origin: {origin}")
    assert completion(server, *headers)[0] == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None]
)
def test_what_a_page_may_send_without_asking_is_not_taken(server, kind):
    """Even where it does not say whose page it is."""
    headers = () if kind is None else (f"Content-Type: {kind}",)
    assert completion(server, *headers)[0] == 415


def test_nothing_is_redirected(server):
    for path in ("/health/", "/v1/models/", "/v1/completions/", "//evil.example/.."):
        status, received = get(server, path, "Host: localhost")
        assert status == 404
        assert "location" not in received.lower()


def test_names_that_are_given_are_served_and_their_pages_may_post():
    with running_server(allowed_hosts=("models.example",)) as server:
        assert get(server, "/health", "Host: models.example:443")[0] == 200
        assert get(server, "/health", "Host: evil.example")[0] == 403
        kind = "Content-Type: application/json"
        assert completion(server, kind, "Origin: https://models.example")[0] == 200
        assert completion(server, kind, "Origin: https://evil.example")[0] == 403


def test_elsewhere_than_on_loopback_any_name_is_served_unless_names_are_given(monkeypatch):
    monkeypatch.setattr(hosts_file, "is_loopback", lambda address: False)
    with running_server() as server:
        assert get(server, "/health", "Host: whatever")[0] == 200
    with running_server(allowed_hosts=("models.example",)) as server:
        assert get(server, "/health", "Host: whatever")[0] == 403
