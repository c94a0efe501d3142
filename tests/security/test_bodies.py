"""Bodies that would build much are refused before anything is built (S07)."""

import json
import socket
import sys
import threading

import pydantic_core
import pytest

from drivers.loop_turns import watched_turns
from drivers.running_server import running_server
from paredown.serve.intake import intake
from paredown.serve.intake.body import SHORT_BODY_BYTES

JSON = {"Content-Type": "application/json"}
GOOD = {"model": "toy", "prompt": "x", "max_tokens": 2}


def listed(entry: bytes, num: int) -> bytes:
    return b"[" + b",".join([entry] * num) + b"]"


BOMBS = {
    "bad_words": b'{"prompt":"x","bad_words":' + listed(b"[1]", 490_000) + b"}",
    "prompts": b'{"prompt":' + listed(b'"a"', 490_000) + b"}",
    "token ids": b'{"prompt":' + listed(b"1", 990_000) + b"}",
    "stop strings": b'{"prompt":"x","stop":' + listed(b'"a"', 490_000) + b"}",
    "unknown keys": b"{" + b",".join(b'"k%06d":1' % i for i in range(150_000)) + b"}",
    "one key": b"{" + b",".join([b'"prompt":1'] * 150_000) + b"}",
    "messages": b'{"messages":' + listed(b'{"role":"user","content":""}', 65_000) + b"}",
    "parts": b'{"messages":[{"role":"user","content":' + listed(b"{}", 600_000) + b"}]}",
    "biases": b'{"logit_bias":{' + b",".join(b'"%d":1' % i for i in range(150_000)) + b"}}",
    "deep": b'{"prompt":' + b"[" * 1_900_000,
    "floats": b'{"allowed_token_ids":' + listed(b"0.5", 490_000) + b"}",
}


@pytest.fixture(scope="module")
def server():
    with running_server() as running:
        yield running


@pytest.fixture
def parsed(monkeypatch):
    """The threads that parsed, and the length of what each parsed."""
    found, from_json = list[tuple[int, int]](), pydantic_core.from_json

    def note(body, **options):
        found.append((threading.get_ident(), len(body)))
        return from_json(body, **options)

    monkeypatch.setattr(pydantic_core, "from_json", note)
    return found


def post(server, body, path="completions"):
    return server.client.post(f"/v1/{path}", content=body, headers=JSON)


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
@pytest.mark.parametrize("body", BOMBS.values(), ids=BOMBS)
def test_a_body_that_holds_too_much_is_refused_unparsed(server, parsed, path, body):
    reply = post(server, body, path)
    assert reply.status_code == 400
    assert "the body holds more than" in reply.json()["error"]["message"]
    assert not parsed


def test_no_turn_of_the_loop_is_long_while_such_bodies_come(server):
    with watched_turns() as taken_s:
        for body in BOMBS.values():
            assert post(server, body).status_code == 400
    assert max(taken_s) < 0.05


def test_short_bodies_are_parsed_on_the_loop_and_long_ones_beside_it(server, parsed):
    assert post(server, json.dumps(GOOD).encode()).status_code == 200
    long = {**GOOD, "prompt": [[65]] * 2, "stop": "y" + " " * 10}
    padded = json.dumps(long).encode() + b" " * SHORT_BODY_BYTES
    assert post(server, padded).status_code == 200
    (loop, _), (beside, num_bytes) = parsed
    assert loop != beside
    assert num_bytes == len(padded)


def test_commas_and_brackets_of_a_text_do_not_count(server, parsed):
    text = '[{",' * 60_000
    reply = post(server, json.dumps({**GOOD, "prompt": text}).encode())
    assert "longer than any prompt" in reply.json()["error"]["message"]
    assert len(parsed) == 1


def test_long_bodies_under_way_are_bounded_together(monkeypatch):
    monkeypatch.setattr(intake, "MAX_BYTES", 300_000)
    body = json.dumps({**GOOD, "prompt": "x" * 200_000}).encode()
    with running_server() as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as slow:
            slow.sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
                + body[:150_000]
            )
            held = server.state.intake.bodies
            server.wait_until(lambda: held.num_held >= 150_000)
            reply = post(server, body)
            assert reply.status_code == 429
            assert reply.headers["Retry-After"] == "1"
            # A short one has its place.
            assert post(server, json.dumps(GOOD).encode()).status_code == 200
        server.wait_until(lambda: not held.num_held)
        assert post(server, body).status_code == 400


@pytest.mark.parametrize("fields", [{"k" * 1_000_000: 1}, {"logit_bias": {"k" * 1_000_000: "x"}}])
def test_names_of_a_client_are_cut(server, fields):
    reply = post(server, json.dumps({**GOOD, **fields}).encode())
    assert reply.status_code == 400
    assert len(reply.content) < 2000


def test_an_object_of_many_fields_has_one_error(server):
    many = {f"k{i}": 1 for i in range(1000)}
    for body, path in (
        ({**GOOD, **many}, "completions"),
        ({**GOOD, "stream": True, "stream_options": many}, "completions"),
        ({"messages": [{"role": "user", "content": "x", **many}]}, "chat/completions"),
        ({"messages": [{"role": "user", "content": [many]}]}, "chat/completions"),
    ):
        reply = post(server, json.dumps(body).encode(), path)
        assert reply.status_code == 400
        assert len(reply.content) < 500


@pytest.mark.skipif(sys.platform != "linux", reason="no other loopback addresses")
def test_slow_bodies_of_one_address_leave_room_for_those_of_others(monkeypatch):
    monkeypatch.setattr(intake, "MAX_BYTES_OF_ADDRESS", 500_000)
    head = (
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 200000\r\n\r\n"
    )
    with running_server() as server:
        port = int(server.url.rpartition(":")[2])

        def send(source: str, body: bytes) -> socket.socket:
            one = socket.create_connection(("127.0.0.1", port), 10, source_address=(source, 0))
            one.sendall(head + body)
            return one

        bodies = server.state.intake.bodies
        slow = [send("127.0.0.1", b" " * 199_000) for _ in range(2)]
        server.wait_until(lambda: bodies.num_held == 2 * 199_000)
        with send("127.0.0.1", b" " * 199_000) as third:
            assert third.recv(4096).startswith(b"HTTP/1.1 429")
        whole = b'{"prompt":"x","max_tokens":1}'
        with send("127.0.0.2", whole + b" " * (200_000 - len(whole))) as other:
            assert other.recv(4096).startswith(b"HTTP/1.1 200")
        for one in slow:
            one.close()
        server.wait_until(lambda: not bodies.num_held)
        assert not bodies.held_by
