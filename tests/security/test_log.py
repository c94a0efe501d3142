"""S17: no client makes the log long, or forges a line of it; no answer is without end."""

import socket
import sys

import pytest

from drivers.running_server import Running, running_server
from paredown.serve.watch.log import MAX_LINE_CHARS, MAX_LINES, ServerLog

HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
BAD_REQUESTS = {
    "no HTTP": b"\x00\xff\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "steers the terminal": b"\x1b[2J\nERROR: forged\r\n\r\n",
    "an upgrade": HEAD + b"Upgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    "a bad body": b"POST /health HTTP/1.1\r\nHost: localhost\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
    "a bad length": b"POST /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
}


@pytest.fixture(autouse=True)
def unused_log(monkeypatch):
    """Gives each test a log of its own: other tests of this process spend the lines of theirs."""
    monkeypatch.setattr("paredown.serve.watch.log._HANDLER", ServerLog())


def send(server: Running, data: bytes) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        sock.sendall(data)
        try:
            sock.recv(1000)
        except ConnectionResetError:
            return


@pytest.mark.parametrize("data", BAD_REQUESTS.values(), ids=BAD_REQUESTS)
def test_bad_requests_make_few_lines_and_their_number_is_said(data, capsys, monkeypatch):
    monkeypatch.setattr("paredown.serve.watch.log.PERIOD_S", 3.0)
    with running_server() as server:
        for _ in range(100):
            send(server, data)
        said = []

        def is_told() -> bool:
            said.append(capsys.readouterr().err)
            return not "".join(said) or "more lines like those" in "".join(said)

        server.wait_until(is_told)
    lines = "".join(said).splitlines()
    # An upgrade is two lines; a slow machine may see two periods.
    assert len(lines) <= 4 * (MAX_LINES + 1)
    for line in lines:
        assert len(line) <= MAX_LINE_CHARS
        assert line.isprintable()
        assert not line.startswith("ERROR")


def test_what_an_error_quotes_of_a_client_cannot_forge_a_line(capsys):
    """The trace of a bug of ours holds whatever the client sent."""

    def fail(messages):
        raise RuntimeError(messages[0]["content"])

    with running_server() as server:
        server.engine.tokenizer.render_chat = fail
        text = "x\n\x1b[2JERROR: forged\n" + "y" * 50_000
        body = {"messages": [{"role": "user", "content": text}]}
        assert server.client.post("/v1/chat/completions", json=body).status_code >= 400
    for line in capsys.readouterr().err.splitlines():
        assert line.isprintable()
        assert len(line) <= MAX_LINE_CHARS + 4
        assert not line.startswith("ERROR: forged")


def test_lines_go_to_the_standard_error_of_the_moment(monkeypatch, capsys):
    with running_server() as server:
        send(server, BAD_REQUESTS["no HTTP"])
        server.wait_until(lambda: "Invalid HTTP" in capsys.readouterr().err)
    assert sys.stderr is not None
