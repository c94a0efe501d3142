"""Nothing a client sends gets a 5xx, stops the server or disturbs another request."""

import json
import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from drivers.running_server import running_server
from fakes.toy_executor import ToyTokenizer
from paredown.errors import RequestError
from paredown.serve.intake.body import MAX_BODY_BYTES
from paredown.serve.schema.chat import ChatRequest
from paredown.serve.schema.completion import CompletionRequest

JSON = {"Content-Type": "application/json"}
GOOD = {"model": "toy", "prompt": "x", "max_tokens": 2}
GOOD_CHAT = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}


@pytest.fixture(scope="module")
def server():
    with running_server() as running:
        yield running


def post(server, path, body):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return server.client.post(f"/v1/{path}", content=content, headers=JSON)


def check_error(reply, status, *, param=None, says=""):
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    assert says in error["message"]


MALFORMED = {
    "empty": b"",
    "not JSON": b"{prompt}",
    "cut": b'{"prompt": "x"',
    "two values": b"{} {}",
    "NaN": b'{"prompt": "x", "temperature": NaN}',
    "infinity": b'{"prompt": "x", "temperature": Infinity}',
    "not UTF-8": b'{"prompt": "\xff"}',
    "lone surrogate": b'{"prompt": "\\ud800"}',
    "nested lists": b"[" * 100_000,
    "nested objects": b'{"a":' * 100_000,
    "a long number": b'{"prompt": "x", "seed": ' + b"9" * 100_000 + b"}",
    "null": b"null",
    "a list": b"[1]",
    "a text": b'"x"',
}


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_malformed_bodies(server, path, body):
    assert post(server, path, body).status_code == 400


BAD_FIELDS = [
    ({"prompt": None}, "prompt"),
    ({"prompt": 3}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": ["a", 1]}, "prompt"),
    ({"prompt": [[1], "a"]}, "prompt"),
    ({"prompt": {"text": "x"}}, "prompt"),
    ({"prompt": ["x"] * 65}, "prompt"),
    ({"prompt": ["x"] * 64, "n": 3}, "n"),
    ({"temperature": "1"}, "temperature"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 10**400}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.5}, "top_p"),
    ({"top_k": -1}, "top_k"),
    ({"max_tokens": -5}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": 10**40}, "max_tokens"),
    ({"n": 0}, "n"),
    ({"n": 129}, "n"),
    ({"seed": 2**63}, "seed"),
    ({"seed": "7"}, "seed"),
    ({"stop": ["a"] * 17}, "stop"),
    ({"stop": ""}, "stop"),
    ({"stop": "x" * 1000}, "stop"),
    ({"stop": [1]}, "stop"),
    ({"stop_token_ids": [-1]}, "stop_token_ids"),
    ({"stop_token_ids": [512]}, "stop_token_ids"),
    ({"logprobs": 21}, "logprobs"),
    ({"logprobs": True}, "logprobs"),
    ({"stream": 1}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"usage": True}}, "stream_options"),
    ({"echo": "yes"}, "echo"),
    ({"suffix": "end"}, "suffix"),
    ({"best_of": 2}, "best_of"),
    ({"presence_penalty": 2.5}, "presence_penalty"),
    ({"frequency_penalty": False}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"min_p": -1}, "min_p"),
    ({"typical_p": 0}, "typical_p"),
    ({"min_tokens": 10**9}, "min_tokens"),
    ({"allowed_token_ids": []}, "allowed_token_ids"),
    ({"allowed_token_ids": [512]}, "allowed_token_ids"),
    ({"bad_words": [[]]}, "bad_words"),
    ({"bad_words": ["word"]}, "bad_words"),
    ({"logit_bias": {"5": 101}}, "logit_bias"),
    ({"logit_bias": {"five": 1}}, "logit_bias"),
    ({"logit_bias": {"9" * 10_000: 1}}, "logit_bias"),
    ({"logit_bias": {"512": 1}}, "logit_bias"),
    ({"priority": 11}, "priority"),
    ({"priority": 0.5}, "priority"),
    ({"deadline_s": 0}, "deadline_s"),
    ({"deadline_s": 1e9}, "deadline_s"),
    ({"cache_salt": "x" * 1025}, "cache_salt"),
    ({"user": 5}, "user"),
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"temprature": 1}, "temprature"),
    ({"__class__": 1}, "__class__"),
]


@pytest.mark.parametrize(("fields", "param"), BAD_FIELDS, ids=lambda value: str(value)[:40])
def test_a_bad_field_is_named(server, fields, param):
    check_error(post(server, "completions", GOOD | fields), 400, param=param)


@pytest.mark.parametrize("field", ["prompt", "allowed_token_ids", "bad_words", "stop"])
def test_a_list_ends_at_its_first_wrong_entry(field):
    """Of all entries the errors would be millions."""
    with pytest.raises(ValidationError) as raised:
        CompletionRequest.model_validate(GOOD | {field: [{}] * 64})
    assert raised.value.error_count() < 10


def test_settings_that_leave_no_token_are_the_clients_fault(server):
    fields = {"allowed_token_ids": [3, 4], "bad_words": [[3], [4]]}
    reply = post(server, "completions", GOOD | fields)
    check_error(reply, 400)
    assert "allow no token" in reply.json()["error"]["message"]


def test_values_that_ask_for_nothing_are_accepted(server):
    no_ops = {
        "echo": False,
        "best_of": 1,
        "suffix": None,
        "logit_bias": {},
        "presence_penalty": 0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1,
        "min_p": None,
        "user": "u",
        "n": None,
        "temperature": None,
        "stream": None,
        "response_format": {"type": "text"},
    }
    assert post(server, "completions", GOOD | no_ops).status_code == 200


def test_a_prompt_that_cannot_be_served_is_400_in_a_stream_too(server):
    for stream in (False, True):
        long = {"prompt": "x" * 300, "stream": stream}
        check_error(post(server, "completions", GOOD | long), 400, says="300 prompt tokens")
        bad = {"prompt": [5, 9999], "stream": stream}
        check_error(post(server, "completions", GOOD | bad), 400, says="9999")
    check_error(post(server, "completions", GOOD | {"prompt": "x" * 30_000}), 400, says="30000")
    mixed = {"prompt": ["fine", "x" * 300]}
    check_error(post(server, "completions", GOOD | mixed), 400, says="300 prompt tokens")
    server.wait_until(lambda: server.is_empty)


def test_paths_methods_and_media_types(server):
    client = server.client
    check_error(client.get("/v1/nothing"), 404)
    check_error(client.get("/v1/completions"), 405)
    check_error(client.post("/health"), 405)
    reply = client.put("/v1/responses/x")
    check_error(reply, 405)
    assert {one.strip() for one in reply.headers["allow"].split(",")} == {"DELETE", "GET", "HEAD"}
    check_error(client.post("/v1/completions", data={"prompt": "x"}), 415, says="Content-Type")
    check_error(client.post("/v1/completions", content=b"{}"), 415)
    gzip = {**JSON, "Content-Encoding": "gzip"}
    check_error(client.post("/v1/completions", content=b"{}", headers=gzip), 415)
    charset = {"Content-Type": "application/json; charset=utf-8"}
    body = json.dumps(GOOD).encode()
    assert client.post("/v1/completions", content=body, headers=charset).status_code == 200
    check_error(post(server, "completions", GOOD | {"model": "x"}), 404, param="model")


def test_a_body_that_is_too_large_is_refused_with_and_without_a_length(server):
    body = b" " * (MAX_BODY_BYTES + 1)
    check_error(post(server, "completions", body), 413)
    parts = (b" " * 100_000 for _ in range(25))
    reply = server.client.post("/v1/completions", content=parts, headers=JSON)
    check_error(reply, 413)


def test_raw_nonsense_on_the_socket(server):
    host, port = server.url.removeprefix("http://").split(":")
    for data in (
        b"\x00\xff\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 50\r\n\r\n{",
    ):
        with socket.create_connection((host, int(port)), timeout=5) as raw:
            raw.sendall(data)
    assert post(server, "completions", GOOD).status_code == 200


def test_a_model_without_a_chat_template_says_so():
    tokenizer = ToyTokenizer()
    tokenizer.has_chat_template = False
    with running_server(tokenizer=tokenizer) as server:
        reply = post(server, "chat/completions", GOOD_CHAT)
        check_error(reply, 400, param="messages", says="chat template")


def test_a_template_that_refuses_the_messages_is_400():
    def refuse(messages, tools, *, template_values):
        raise RequestError("the template refuses", seen="roles", remedy="Alternate them.")

    tokenizer = ToyTokenizer()
    tokenizer.render_chat = refuse
    with running_server(tokenizer=tokenizer) as server:
        check_error(post(server, "chat/completions", GOOD_CHAT), 400, says="the template refuses")


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 40),
    st.sampled_from([2**31, 2**63, -(2**63) - 1, 10**100]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)
FIELDS = [
    *CompletionRequest.model_fields,
    *ChatRequest.model_fields,
    *("echo", "tools", "logit_bias", "response_format"),
]
BASES = st.sampled_from([{}, GOOD, GOOD_CHAT, {**GOOD, "stream": True}])


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(["completions", "chat/completions"]),
    BASES,
    st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=8), VALUES, max_size=4),
)
def test_random_json_never_gets_a_5xx(server, path, base, fields):
    content = json.dumps(base | fields, ensure_ascii=True)
    assert post(server, path, content.encode()).status_code in (200, 400, 404, 413, 429)
    assert server.client.get("/health").status_code == 200


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=60) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_random_bytes_never_get_a_5xx(server, content):
    # Hypothesis draws texts from our source too, so an object with a prompt may be a request.
    allowed = (200, 400, 404) if b'"prompt"' in content else (400,)
    assert post(server, "completions", content).status_code in allowed


def test_afterwards_the_server_is_alive_and_empty(server):
    assert post(server, "completions", GOOD).status_code == 200
    server.wait_until(lambda: server.is_empty)
    server.engine.check_integrity()
