"""The Messages API: blocks in order, the form of errors, and conversations by translation."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drivers.chat_client import ADD, CHAT, NOTE, USER, call, chat_client
from fakes.scripted_chat import cuts, pieces
from paredown.serve.answers.message_format import as_input
from paredown.serve.answers.response_cache import ResponseCache

PATH = "/v1/messages"
BODY = {"messages": USER, "max_tokens": 500}


def described(tool):
    function = tool["function"]
    return {"name": function["name"], "input_schema": function["parameters"]}


@pytest.fixture(scope="module")
def client():
    with chat_client() as running:
        yield running


def folded(events):
    """The message that a client puts together from a stream."""
    message, blocks, open_index = None, [], None
    for name, event in events:
        assert name == event["type"]
        match name:
            case "message_start":
                message = event["message"]
            case "content_block_start":
                assert open_index is None
                open_index = event["index"]
                assert open_index == len(blocks)
                blocks.append({**event["content_block"], "json": ""})
            case "content_block_delta":
                assert event["index"] == open_index
                block, delta = blocks[open_index], event["delta"]
                match delta["type"]:
                    case "text_delta":
                        block["text"] += delta["text"]
                    case "thinking_delta":
                        block["thinking"] += delta["thinking"]
                    case "input_json_delta":
                        block["json"] += delta["partial_json"]
            case "content_block_stop":
                assert event["index"] == open_index
                open_index = None
            case "message_delta":
                message |= event["delta"]
                message["usage"] |= event["usage"]
    assert open_index is None
    for block in blocks:
        text = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = as_input(text)
    return {**message, "content": blocks}


def bare(message):
    """A message without what is drawn anew for each request."""
    content = [{**one, "id": ""} if "id" in one else one for one in message["content"]]
    return {**message, "id": "", "content": content}


def test_events_come_in_order(client):
    client.say(f"<think>\nhm\n</think>\n\nI ask. {call('add', a=1, b=2)}")
    events = client.events(PATH, **BODY, tools=[described(ADD)])
    assert [name for name, _ in events] == [
        "message_start",
        *("content_block_start", "content_block_delta", "content_block_delta"),
        "content_block_stop",
        *("content_block_start", "content_block_delta", "content_block_stop"),
        *("content_block_start", "content_block_delta", "content_block_stop"),
        "message_delta",
        "message_stop",
    ]
    kinds = [one["content_block"]["type"] for name, one in events if name == "content_block_start"]
    assert kinds == ["thinking", "text", "tool_use"]
    assert events[0][1]["message"]["usage"]["input_tokens"] > 0
    assert events[-2][1]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}


PARTS = st.lists(
    st.sampled_from(
        [
            *("<think>\n", "thought", "\n</think>\n\n", "text ", "ä🦊", "<tool_call>", "{", "\n"),
            *(call("add", a=1, b=2), call("note", text="</tool_call>"), call("nothing")),
        ]
    ),
    max_size=6,
).map("".join)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(PARTS, st.lists(st.integers(1, 200), max_size=5), st.sampled_from([500, 3]))
def test_a_stream_adds_up_to_the_whole_message(client, text, borders, most):
    client.say(*pieces(text, borders))
    body = {**BODY, "tools": [described(ADD), described(NOTE)], "max_tokens": most}
    assert bare(folded(client.events(PATH, **body))) == bare(client.ask(PATH, **body))


def test_a_model_that_says_nothing_says_an_empty_text(client):
    client.say()
    message = client.ask(PATH, **BODY)
    assert message["content"] == [{"type": "text", "text": ""}]
    assert bare(folded(client.events(PATH, **BODY))) == bare(message)


def test_what_ended_an_answer_is_told(client):
    client.say("one ", "two ", "three")
    assert client.ask(PATH, **BODY)["stop_reason"] == "end_turn"
    message = client.ask(PATH, **BODY, stop_sequences=["never", "two"])
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "two")
    assert message["content"] == [{"type": "text", "text": "one "}]
    cut = client.ask(PATH, messages=USER, max_tokens=1)
    assert (cut["stop_reason"], cut["usage"]["output_tokens"]) == ("max_tokens", 1)


def test_a_kept_answer_is_the_same_as_the_first():
    text = f"<think>\nhm\n</think>\n\nI ask. {call('add', a=1, b=2)} two more"
    with chat_client(response_cache=ResponseCache(10**6)) as client:
        client.say(*text)
        body = {**BODY, "temperature": 0, "stop_sequences": ["two"], "tools": [described(ADD)]}
        first, second = (client.ask(PATH, **body) for _ in range(2))
        for one in (first, second):
            del one["usage"]
        assert bare(first) == bare(second)
        first, second = (
            client.ask(CHAT, messages=USER, temperature=0, tools=[ADD]) for _ in range(2)
        )
        assert first["choices"][0]["message"]["reasoning"] == "hm"
        for one in (first, second):
            assert one["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


def test_a_conversation_with_tools_becomes_a_chat(client):
    client.say("x")
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "?"},
        {"type": "text", "text": "I ask.", "cache_control": {"type": "ephemeral"}},
        {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1, "b": "ö"}},
    ]
    results = [
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "3"}]},
        {"type": "tool_result", "tool_use_id": "t2", "content": "no", "is_error": True},
        {"type": "text", "text": "Go"},
        {"type": "text", "text": "on."},
    ]
    word = [{"type": "text", "text": "Now."}]
    messages = [
        *USER,
        {"role": "system", "content": word},
        {"role": "assistant", "content": content},
        {"role": "user", "content": results},
        {"role": "user", "content": "Now."},
    ]
    system = [{"type": "text", "text": "A."}, {"type": "text", "text": "B."}]
    client.ask(PATH, messages=messages, max_tokens=9, system=system, tools=[described(ADD)])
    found = client.tokenizer.messages
    roles = ["system", "user", "system", "assistant", "tool", "tool", "user"]
    assert [one["role"] for one in found] == roles
    assert [found[0]["content"], found[2]["content"]] == ["A.\n\nB.", "Now."]
    assert found[3]["reasoning_content"] == "hm"
    assert found[3]["tool_calls"][0]["function"]["arguments"] == {"a": 1, "b": "ö"}
    assert [one["content"] for one in found[4:]] == ["3", "Error: no", "Go\non.\nNow."]
    assert client.tokenizer.tools[0]["function"]["parameters"] == ADD["function"]["parameters"]


def test_thinking_reaches_the_template(client):
    client.say("x")
    for thinking, wanted in (
        ({"type": "disabled"}, {"enable_thinking": False}),
        ({"type": "enabled", "budget_tokens": 1024}, {"enable_thinking": True}),
        ({"type": "adaptive"}, {}),
    ):
        client.ask(PATH, **BODY, thinking=thinking)
        assert client.tokenizer.template_values == wanted


def test_the_tokens_of_a_prompt_are_counted(client):
    client.say("x")
    body = {"messages": USER, "system": "Be brief.", "tools": [described(ADD)]}
    counted = client.ask(f"{PATH}/count_tokens", **body)
    message = client.ask(PATH, **body, max_tokens=1)
    assert counted == {"input_tokens": message["usage"]["input_tokens"]}


def test_a_call_that_was_cut_shows_as_much_as_there_is(client):
    client.say(*cuts(call("add", a=1, b=22), "<tool_call>")[2])
    message = client.ask(PATH, messages=USER, max_tokens=55, tools=[described(ADD)])
    assert message["stop_reason"] == "max_tokens"
    assert message["content"][-1]["type"] in ("tool_use", "text")


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
REDACTED = {"type": "redacted_thinking", "data": "x"}
BAD = [
    ({"messages": USER}, "max_tokens"),
    ({**BODY, "max_tokens": 0}, "max_tokens"),
    ({**BODY, "messages": []}, "messages"),
    ({**BODY, "messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
    ({**BODY, "context_management": {"edits": [{"type": "compact"}]}}, "context_management"),
    ({**BODY, "messages": [{"role": "user", "content": [IMAGE]}]}, "image"),
    ({**BODY, "messages": [{"role": "user", "content": [{"type": "document"}]}]}, "document"),
    ({**BODY, "messages": [{"role": "user", "content": [{"type": "x"}]}]}, "'x'"),
    ({**BODY, "messages": [*USER, {"role": "assistant", "content": "x"}]}, "end with"),
    ({**BODY, "messages": [{"role": "user", "content": [{"type": "text"}]}]}, "text"),
    ({**BODY, "messages": [{"role": "user", "content": [REDACTED]}]}, "redacted_thinking"),
    ({**BODY, "tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search"),
    ({**BODY, "tools": [{"name": "f"}]}, "input_schema"),
    ({**BODY, "tool_choice": {"type": "any"}}, "tool_choice"),
    ({**BODY, "tool_choice": {"type": "tool"}}, "tool_choice"),
    ({**BODY, "mcp_servers": [{"type": "url"}]}, "mcp_servers"),
    ({**BODY, "container": "c"}, "container"),
    ({**BODY, "temperature": -1}, "temperature"),
    ({**BODY, "stop_sequences": ["x"] * 99}, "stop_sequences"),
    ({**BODY, "thinking": {"type": "enabled", "budget_tokens": -1}}, "thinking"),
    ({**BODY, "nothing": 1}, "nothing"),
]


@pytest.mark.parametrize(("body", "says"), BAD, ids=lambda value: str(value)[:50])
def test_errors_have_the_form_of_this_api(client, body, says):
    status, reply = client.post(PATH, **body)
    assert status == 400
    assert reply["type"] == "error"
    assert reply["error"]["type"] == "invalid_request_error"
    assert says in reply["error"]["message"]


def test_other_errors_have_it_too(client):
    reply = client.server.client.post(
        PATH, content=b"{", headers={"Content-Type": "application/json"}
    )
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")
    reply = client.server.client.post(PATH, json={**BODY, "model": "other"})
    assert (reply.status_code, reply.json()["error"]["type"]) == (404, "not_found_error")


def test_what_asks_for_nothing_is_accepted(client):
    client.say("x")
    body = {
        **BODY,
        "metadata": {"user_id": "u"},
        "service_tier": "auto",
        "cache_control": {"type": "ephemeral"},
        "mcp_servers": [],
        "tools": [{**described(ADD), "type": "custom", "cache_control": {"type": "ephemeral"}}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "output_config": {"effort": "low"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    }
    headers = {"anthropic-version": "2023-06-01", "x-api-key": "k", "anthropic-beta": "b"}
    reply = client.server.client.post(PATH, json=body, headers=headers)
    assert reply.status_code == 200, reply.text


def test_arguments_that_are_no_object_are_an_empty_input():
    assert as_input('{"a": [1, 2') == {"a": [1, 2]}
    for text in ("", "[1]", "x", '"'):
        assert as_input(text) == {}
    json.dumps(as_input('{"a": 1}'))
