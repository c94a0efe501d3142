"""Random JSON never gets a 5xx from a route that takes conversations."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drivers.chat_client import ADD, CHAT, USER, call, chat_client
from paredown.serve.schema.chat import ChatRequest
from paredown.serve.schema.messages import MessageRequest
from paredown.serve.schema.response import ResponseRequest

FUNCTION = ADD["function"]
GOOD = {
    CHAT: {"messages": USER, "tools": [ADD], "max_tokens": 3},
    "/v1/responses": {
        "input": [{"role": "user", "content": "x"}, {"type": "reasoning", "summary": []}],
        "tools": [{"type": "function", **FUNCTION}],
        "max_output_tokens": 3,
    },
    "/v1/messages": {
        "messages": USER,
        "tools": [{"name": "add", "input_schema": FUNCTION["parameters"]}],
        "max_tokens": 3,
    },
}
for counts, of in (
    ("/v1/responses/input_tokens", "/v1/responses"),
    ("/v1/messages/count_tokens", "/v1/messages"),
):
    GOOD[counts] = {name: one for name, one in GOOD[of].items() if "max_" not in name}
FIELDS = sorted(
    {*ChatRequest.model_fields, *ResponseRequest.model_fields, *MessageRequest.model_fields}
)
# Words that mean something somewhere.
WORDS = st.sampled_from(
    [
        *(
            "type",
            "role",
            "content",
            "text",
            "name",
            "id",
            "call_id",
            "arguments",
            "input",
            "tools",
        ),
        *("user", "assistant", "tool", "system", "function", "message", "tool_use", "tool_result"),
        *("thinking", "reasoning", "summary", "input_text", "output_text", "refusal", "image_url"),
        *("auto", "required", "any", "none", "enabled", "json_schema", "schema", "effort", "low"),
        *("tool_calls", "tool_call_id", "function_call", "function_call_output", "output", "{}"),
    ]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 0, 1, 3, 2**31, 10**100, 1e308, 0.5]),
    WORDS,
    st.text(max_size=5),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def client():
    with chat_client() as running:
        running.say("a", call("add", a=1, b=2))
        yield running


def within(body: object, path: list[int], value: object) -> object:
    """The body with one of its parts, at any depth, replaced."""
    if not path or not isinstance(body, dict | list) or not body:
        return value
    keys = sorted(body) if isinstance(body, dict) else range(len(body))
    key = list(keys)[path[0] % len(body)]
    copy = body.copy()
    copy[key] = within(body[key], path[1:], value)
    return copy


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(sorted(GOOD)),
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=3),
    st.lists(st.integers(0, 9), min_size=1, max_size=5),
    VALUES,
    st.booleans(),
)
def test_random_json_never_gets_a_5xx(client, path, fields, place, value, is_streamed):
    body = {**within(GOOD[path], place, value), **fields}
    if is_streamed:
        body["stream"] = True
    reply = client.server.client.post(
        path, content=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    assert reply.status_code in (200, 400, 404, 429), reply.text
    if reply.status_code != 200:
        assert isinstance(reply.json()["error"]["message"], str)


def test_afterwards_the_server_answers_and_is_empty(client):
    for path, body in GOOD.items():
        assert client.server.client.post(path, json=body).status_code == 200
    client.server.wait_until(lambda: not client.server.worker.num_open_answers)
    client.server.engine.check_integrity()
