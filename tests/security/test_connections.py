"""S15: whoever is silent, slow or reads nothing holds no place that others need."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from drivers.running_server import NUM_PAGES, SPEC, Running, running_server
from fakes.toy_executor import ToyExecutor
from paredown.serve.doors import connection

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
LONG = {"model": "toy", "prompt": "x", "max_tokens": 250, "ignore_eos": True}
# Between what returns and what hangs.
PATIENCE_S = 10.0


def post(body: dict, *, headers: bytes = b"") -> bytes:
    content = json.dumps(body).encode()
    return (
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        + headers
        + b"Content-Length: %d\r\n\r\n" % len(content)
        + content
    )


def connect(server: Running, *, receive_bytes: int = 0) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    sock = socket.socket()
    sock.settimeout(PATIENCE_S)
    if receive_bytes:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    sock.connect((host, int(port)))
    return sock


def is_cut_off(sock: socket.socket, sent: bytes) -> bool:
    """Sends again and again, and reads nothing, until the server ends it."""
    end_s = time.monotonic() + PATIENCE_S
    sock.settimeout(0.1)
    while time.monotonic() < end_s:
        try:
            sock.sendall(sent)
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


def status(server: Running, path: str = "/health", **options) -> int:
    with httpx.Client(timeout=PATIENCE_S) as client:
        reply = client.post if options else client.get
        return reply(f"{server.url}{path}", **options).status_code


@contextmanager
def busy_server(num_places: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", num_places)
    executor = ToyExecutor(num_pages=NUM_PAGES, spec=SPEC, delay_s=0.01)
    with running_server(executor=executor) as server:
        server.client.close()
        yield server


@pytest.mark.parametrize("path", [b"/health", b"/v1/models", b"/v1/models/" + b"x" * 15_000])
def test_who_sends_requests_and_reads_nothing_is_cut_off(monkeypatch, path):
    monkeypatch.setattr(connection, "WRITE_TIMEOUT_S", 0.3)
    with running_server() as server, connect(server, receive_bytes=4096) as sock:
        assert is_cut_off(sock, b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert status(server) == 200


@pytest.fixture
def small_buffers(monkeypatch):
    """An answer does not fit in the system's buffers."""
    monkeypatch.setattr("paredown.serve.server.SEND_BUFFER_BYTES", 4096)


def without_chunks(content: bytes) -> bytes:
    """A body that came in chunks (RFC 9112, 7.1), as it was."""
    body = b""
    while not content.startswith(b"0\r\n"):
        size, _, content = content.partition(b"\r\n")
        length = int(size, 16)
        body, content = body + content[:length], content[length + 2 :]
    return body


def is_reset(sock: socket.socket) -> bool:
    try:
        while sock.recv(1 << 20):
            pass
    except ConnectionResetError:
        return True
    return False


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("headers", [b"", b"Connection: close\r\n"])
def test_an_answer_that_nobody_reads_is_cut_off(monkeypatch, small_buffers, stream, headers):
    """Also where the server has closed the connection already, and only the answer is left."""
    monkeypatch.setattr(connection, "WRITE_TIMEOUT_S", 0.3)
    body = {**LONG, "n": 8, "logprobs": 20, "stream": stream}
    with running_server() as server, connect(server, receive_bytes=4096) as sock:
        sock.sendall(post(body, headers=headers))
        server.wait_until(lambda: server.engine.scheduler.cache.stats.num_queries > 0)
        server.wait_until(lambda: server.is_empty)
        server.wait_until(lambda: not server.worker.num_open_answers)
        time.sleep(1.0)
        assert is_reset(sock)


def test_a_client_that_reads_slowly_gets_its_whole_answer(monkeypatch, small_buffers):
    monkeypatch.setattr(connection, "WRITE_TIMEOUT_S", 1.0)
    body = {**LONG, "n": 4, "logprobs": 20}
    with running_server() as server, connect(server, receive_bytes=4096) as sock:
        sock.sendall(post(body, headers=b"Connection: close\r\n"))
        received = b""
        while part := sock.recv(8192):
            received += part
            time.sleep(0.01)
        head, _, content = received.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert json.loads(without_chunks(content))["usage"]["completion_tokens"] == 1000


@pytest.mark.parametrize("sent", [b"", b"GET /he", post(LONG)[:-5]], ids=["silent", "head", "body"])
def test_silent_clients_hold_no_place_that_another_wants(monkeypatch, sent):
    with busy_server(8, monkeypatch) as server, ExitStack() as stack:
        for _ in range(24):
            stack.enter_context(connect(server)).sendall(sent)
        assert status(server) == 200
        assert status(server, "/v1/completions", json={**LONG, "max_tokens": 2}) == 200


def test_idle_clients_hold_no_place_either(monkeypatch):
    with busy_server(4, monkeypatch) as server, ExitStack() as stack:
        for _ in range(8):
            client = stack.enter_context(httpx.Client(base_url=server.url))
            assert client.get("/health").status_code == 200


def test_clients_that_read_nothing_give_way(monkeypatch, small_buffers):
    monkeypatch.setattr(connection, "WRITE_TIMEOUT_S", 60.0)
    body = {**LONG, "n": 8, "logprobs": 20}
    with busy_server(4, monkeypatch) as server, ExitStack() as stack:
        deaf = [stack.enter_context(connect(server, receive_bytes=4096)) for _ in range(4)]
        for sock in deaf:
            sock.sendall(post(body))
        server.wait_until(lambda: server.engine.scheduler.cache.stats.num_queries >= 4)
        server.wait_until(lambda: server.is_empty, timeout_s=30)
        time.sleep(0.5)
        assert status(server, "/v1/completions", json={**LONG, "max_tokens": 2}) == 200
        assert is_reset(deaf[0])


def test_health_is_answered_while_every_place_works_and_others_are_told(monkeypatch):
    with busy_server(2, monkeypatch) as server, ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(connect(server)).sendall(post(LONG))
        server.wait_until(lambda: server.engine.num_unfinished == 2)
        with httpx.Client() as client:
            started_s = time.monotonic()
            assert client.get(f"{server.url}/health").status_code == 200
            assert time.monotonic() - started_s < 1.0
            refused = client.get(f"{server.url}/v1/models")
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "too_many_connections"
        server.wait_until(lambda: server.engine.num_unfinished == 2)
        server.wait_until(lambda: not server.engine.num_unfinished)
        assert status(server, "/v1/models") == 200


def test_an_address_has_so_many_connections_and_no_more():
    with running_server(address_connections=3) as server, ExitStack() as stack:
        server.client.close()
        first, *others = (stack.enter_context(connect(server)) for _ in range(4))
        assert first.recv(100).startswith(b"HTTP/1.1 503 ")
        for sock in others:
            sock.sendall(HEALTH)
            assert sock.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_what_comes_ahead_of_an_answer_is_bounded_and_ends_the_work():
    executor = ToyExecutor(num_pages=NUM_PAGES, spec=SPEC, delay_s=0.02)
    with running_server(executor=executor) as server, connect(server) as sock:
        sock.sendall(post(LONG))
        server.wait_until(lambda: server.engine.num_unfinished == 1)
        assert is_cut_off(sock, HEALTH * 1000)
        server.wait_until(lambda: server.is_empty)
        assert executor.num_steps < 200


def test_a_client_that_hangs_up_behind_a_second_request_is_seen_to():
    executor = ToyExecutor(num_pages=NUM_PAGES, spec=SPEC, delay_s=0.02)
    with running_server(executor=executor) as server:
        with connect(server) as sock:
            sock.sendall(post(LONG) + HEALTH)
            server.wait_until(lambda: server.engine.num_unfinished == 1)
            sock.sendall(HEALTH)
        server.wait_until(lambda: server.is_empty)
        assert executor.num_steps < 200


def test_requests_that_come_together_are_answered_in_order():
    with running_server() as server, connect(server) as sock:
        close = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        sock.sendall(HEALTH * 200 + close)
        received = b"".join(iter(lambda: sock.recv(1 << 16), b""))
        assert received.count(b'{"status":"ready"}') == 200
        assert received.endswith(b"}]}")


@pytest.mark.parametrize("path", ["/v1/models/", "/", "/v1/completions/"])
def test_names_come_back_cut(path):
    with running_server() as server:
        for reply in (
            server.client.get(path + "x" * 15_000),
            server.client.request("X" * 15_000, "/health"),
            server.client.post("/v1/completions", json={"k" * 100_000: 1, "prompt": "x"}),
            server.client.post("/v1/completions", json={"model": "m" * 1000, "prompt": "x"}),
        ):
            assert 400 <= reply.status_code < 500
            assert len(reply.content) < 1500


def test_nonsense_in_the_middle_of_an_answer_is_no_error_of_the_server(caplog):
    executor = ToyExecutor(num_pages=NUM_PAGES, spec=SPEC, delay_s=0.01)
    with running_server(executor=executor) as server:
        for headers in (
            b"Connection: close\r\n",
            b"",
            b"Upgrade: websocket\r\nConnection: upgrade\r\n",
        ):
            with connect(server) as sock:
                sock.sendall(post({**LONG, "stream": True}, headers=headers))
                assert sock.recv(100).startswith(b"HTTP/1.1 200 ")
                sock.sendall(b"\x00nonsense\r\n\r\n")
                time.sleep(0.05)
        with connect(server) as sock:
            sock.sendall(
                b"POST /health HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            assert sock.recv(100).startswith(b"HTTP/1.1 405 ")
            sock.sendall(b"zz\r\n")
            time.sleep(0.05)
        server.wait_until(lambda: server.is_empty)
        assert status(server) == 200
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


def test_threads_and_places_are_back_when_clients_have_gone():
    threads = set(threading.enumerate())
    with running_server() as server:
        for _ in range(3):
            with ExitStack() as stack:
                for _ in range(40):
                    stack.enter_context(connect(server)).sendall(b"GET /hea")
            assert status(server) == 200
    # Threads of earlier tests may end meanwhile.
    assert set(threading.enumerate()) <= threads


@pytest.mark.parametrize("in_one_piece", [True, False])
def test_a_head_that_is_too_long_is_refused_before_it_is_read(in_one_piece):
    with running_server() as server, connect(server) as sock:
        sock.sendall(b"GET /v1/models/" + b"x" * 60_000)
        if not in_one_piece:
            time.sleep(0.1)
        assert sock.recv(1000).split(b" ")[1] in (b"400", b"431")


def test_requests_without_end_do_not_hold_up_another(monkeypatch):
    """They are answered, one after the other, while others have their turn between."""
    monkeypatch.setattr("paredown.serve.doors.turns.BUDGET_S", 0.0)
    with running_server() as server, ExitStack() as stack:
        may_end = threading.Event()

        def keep_asking() -> None:
            with connect(server) as sock:
                while not may_end.is_set():
                    sock.sendall(HEALTH * 50)
                    num_answers = 0
                    while num_answers < 50:
                        num_answers += sock.recv(1 << 16).count(b'"ready"')

        threads = [threading.Thread(target=keep_asking) for _ in range(8)]
        for thread in threads:
            thread.start()
            stack.callback(thread.join)
        stack.callback(may_end.set)
        for _ in range(20):
            assert status(server) == 200
        assert status(server, "/v1/completions", json={**LONG, "max_tokens": 2}) == 200
