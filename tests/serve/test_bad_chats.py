"""A bad field of a chat is refused by name, and what asks for nothing is accepted."""

import json

import pytest

from drivers.running_server import running_server

JSON = {"Content-Type": "application/json"}
GOOD_CHAT = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}


@pytest.fixture(scope="module")
def server():
    with running_server() as running:
        yield running


def post(server, path, body):
    return server.client.post(f"/v1/{path}", content=json.dumps(body).encode(), headers=JSON)


def check_error(reply, *, param, says=""):
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert error["param"] == param
    assert says in error["message"]


CALLS = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


def tool(name, **fields):
    return {"type": "function", "function": {"name": name, **fields}}


def named(name):
    return {"type": "function", "function": {"name": name}}


def allowed(*names):
    choice = {"mode": "auto", "tools": [named(name) for name in names]}
    return {"type": "allowed_tools", "allowed_tools": choice}


def nested(depth):
    schema = {}
    for _ in range(depth):
        schema = {"properties": schema}
    return schema


TOOLS = [tool("f")]
BAD_CHATS = [
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages"),
    ({"messages": [{"role": "user"}]}, "messages"),
    ({"messages": [{"role": "user", "content": None}]}, "messages"),
    ({"messages": [{"role": "user", "content": "x", "name": 3}]}, "messages"),
    ({"messages": [{"role": "user", "content": "x", "tool_calls": CALLS}]}, "messages"),
    ({"messages": [{"role": "user", "content": "x", "reasoning": "y"}]}, "messages"),
    ({"messages": [{"role": "user", "content": "x", "tool_call_id": "1"}]}, "messages"),
    ({"messages": [{"role": "system"}]}, "messages"),
    ({"messages": [{"role": "function", "content": "x"}]}, "messages"),
    ({"messages": [{"role": "assistant", "content": None, "tool_calls": [{}]}]}, "messages"),
    ({"messages": [{"role": "assistant", "tool_calls": CALLS * 129}]}, "messages"),
    ({"messages": [{"role": "assistant", "function_call": {"name": "f"}}]}, "messages"),
    ({"messages": [{"role": "assistant", "audio": {"id": "1"}}]}, "messages"),
    ({"tools": TOOLS}, "tools"),
    ({"tools": TOOLS * 2, "tool_choice": "none"}, "tools"),
    ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools"),
    ({"tools": [{"type": "web_search"}]}, "tools"),
    ({"tools": [3]}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": 3}}]}, "tools"),
    ({"tools": [tool(f"f{number}") for number in range(129)]}, "tools"),
    ({"tools": [tool("f", description="x" * 300_000)]}, "tools"),
    ({"tools": [tool("f", parameters=nested(40))]}, "tools"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": "maybe"}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {}}}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": named("g")}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": allowed("g")}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": allowed()}, "tool_choice"),
    ({"reasoning_effort": "extreme"}, "reasoning_effort"),
    ({"thinking_budget": -1}, "thinking_budget"),
    ({"chat_template_kwargs": {"messages": "x"}}, "chat_template_kwargs"),
    ({"chat_template_kwargs": {"chat_template": "{{ 1 }}"}}, "chat_template_kwargs"),
    ({"chat_template_kwargs": {"enable_thinking": "no"}}, "chat_template_kwargs"),
    (
        {"chat_template_kwargs": {f"v{number}": True for number in range(17)}},
        "chat_template_kwargs",
    ),
    ({"verbosity": "huge"}, "verbosity"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"function_call": "auto"}, "function_call"),
    ({"audio": {"voice": "x"}}, "audio"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"prediction": {"type": "content"}}, "prediction"),
    ({"web_search_options": {}}, "web_search_options"),
    ({"moderation": {"model": "m"}}, "moderation"),
    ({"best_of": 2}, "best_of"),
    ({"store": True}, "store"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
    ({"max_completion_tokens": 2}, "max_tokens"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logprobs": 3}, "logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "logprobs"),
]


@pytest.mark.parametrize(("fields", "param"), BAD_CHATS, ids=lambda value: str(value)[:60])
def test_a_bad_chat_field_is_named(server, fields, param):
    check_error(post(server, "chat/completions", GOOD_CHAT | fields), param=param)


def test_values_that_ask_for_nothing_are_accepted(server):
    chat = {
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "store": False,
        "service_tier": "auto",
        "reasoning_effort": "low",
        "chat_template_kwargs": {"enable_thinking": False},
        "prompt_cache_options": {"mode": "implicit"},
        "modalities": ["text"],
        "functions": [],
        "function_call": "none",
    }
    assert post(server, "chat/completions", GOOD_CHAT | chat).status_code == 200


def test_tools_that_may_not_be_called_are_not_shown(server):
    chat = {"tools": TOOLS, "tool_choice": "none"}
    assert post(server, "chat/completions", GOOD_CHAT | chat).status_code == 200


def test_what_has_no_effect_is_said_in_a_header(server):
    reply = post(server, "chat/completions", GOOD_CHAT | {"verbosity": "low"})
    assert reply.status_code == 200
    assert "verbosity" in reply.headers["X-Paredown-Note"]
    assert "X-Paredown-Note" not in post(server, "chat/completions", GOOD_CHAT).headers


WRONG_PARTS = {
    "messages.0.content.1": [{"type": "text", "text": "A"}, {"type": "image_url"}],
    "messages.0.content.0.text": [{"type": "text"}],
    "messages.0.content.0.type": [{"type": "thoughts", "text": "A"}],
}


@pytest.mark.parametrize("path", WRONG_PARTS)
def test_the_path_of_a_wrong_part_is_told(server, path):
    message = {"role": "user", "content": WRONG_PARTS[path]}
    reply = post(server, "chat/completions", GOOD_CHAT | {"messages": [message]})
    check_error(reply, param="messages", says=f"{path}: ")
    if path.endswith("1"):
        assert (
            "it is an image, only text parts are served" in reply.json()["error"]["message"].lower()
        )
