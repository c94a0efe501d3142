"""Tools and reasoning in chats: what others got wrong, and streams that agree with whole replies
(A01 to A05 of new-rooms)."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drivers.chat_client import (
    ADD,
    CHAT,
    NOTE,
    PING,
    USER,
    call,
    calls,
    chat_client,
    deltas,
    ends,
    folded,
    joined,
    whole,
)
from fakes.scripted_chat import cuts, pieces
from paredown.models.chat.turn_format import TurnFormat


@pytest.fixture(scope="module")
def client():
    with chat_client() as running:
        yield running


def test_letters_of_all_scripts_in_arguments(client):
    """A01: four tokens make the fox."""
    text = call("note", text="Zoë 東京 🦊")
    before, after = text.split("🦊")
    fox = [bytes([byte]) for byte in "🦊".encode()]
    for said in ([before, *fox, after], *cuts(text, "<tool_call>")):
        client.say(*said)
        chunks = client.chunks(tools=[NOTE])
        arguments = calls(chunks)[0]["arguments"]
        message = client.choice(tools=[NOTE])["message"]
        assert arguments == message["tool_calls"][0]["function"]["arguments"]
        assert json.loads(arguments) == {"text": "Zoë 東京 🦊"}
        assert "\ufffd" not in json.dumps(chunks, ensure_ascii=False)


@pytest.mark.parametrize("number", range(3))
def test_markers_inside_of_an_argument(client, number):
    """A03."""
    wanted = {"text": "a </tool_call> b <tool_call> c"}
    client.say(*cuts(call("note", **wanted), "</tool_call>")[number])
    chunks, plain = client.chunks(tools=[NOTE]), client.choice(tools=[NOTE])
    assert [json.loads(one["arguments"]) for one in calls(chunks)] == [wanted]
    assert not joined(chunks).strip()
    assert ends(chunks) == [plain["finish_reason"]] == ["tool_calls"]
    assert not plain["message"]["content"]
    assert json.loads(plain["message"]["tool_calls"][0]["function"]["arguments"]) == wanted


@pytest.mark.parametrize("number", range(3))
def test_choices_of_one_request_share_nothing(client, number):
    """A05."""
    client.say(*cuts(call("add", a=1, b=2), "<tool_call>")[number])
    one = client.ask(CHAT, messages=USER, tools=[ADD])
    chunks = client.chunks(tools=[ADD], n=3, stream_options={"include_usage": True})
    found = [calls(chunks, choice)[0] for choice in range(3)]
    assert all(json.loads(each["arguments"]) == {"a": 1, "b": 2} for each in found)
    assert [ends(chunks, choice) for choice in range(3)] == [["tool_calls"]] * 3
    assert len({each["ids"][0] for each in found}) == 3
    last = [chunk for chunk in chunks if not chunk["choices"]]
    (usage,) = [chunk["usage"] for chunk in last]
    assert usage["completion_tokens"] == 3 * one["usage"]["completion_tokens"]
    assert not any("usage" in chunk for chunk in client.chunks(tools=[ADD], n=3))


def test_a_call_after_reasoning_and_text(client):
    text = f"<think>\nLet me see.\n</think>\n\nI ask. {call('add', a=1, b=2)}\n{call('ping')}"
    for said in cuts(text, "</think>"):
        client.say(*said)
        reply = client.ask(CHAT, messages=USER, tools=[ADD, PING])
        message = reply["choices"][0]["message"]
        assert message["reasoning_content"] == message["reasoning"] == "Let me see."
        assert message["content"] == "I ask."
        assert [one["function"]["name"] for one in message["tool_calls"]] == ["add", "ping"]
        assert all(one["id"].startswith("call_") for one in message["tool_calls"])
        assert {one["type"] for one in message["tool_calls"]} == {"function"}
        assert len({one["id"] for one in message["tool_calls"]}) == 2
        assert reply["choices"][0]["finish_reason"] == "tool_calls"


def test_reasoning_tokens_are_counted(client):
    client.say("<think>", "\n", "a", "b", "\n</think>", "\n\n", "c")
    usage = client.ask(CHAT, messages=USER)["usage"]
    # Its markers are reasoning too, as far as no text follows in the same token.
    assert 2 <= usage["completion_tokens_details"]["reasoning_tokens"] <= 5
    client.say("a", "b")
    usage = client.ask(CHAT, messages=USER)["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 0


def test_a_call_that_is_cut_off_ends_by_length(client):
    client.say(*cuts(call("add", a=1, b=2), "<tool_call>")[2])
    choice = client.choice(tools=[ADD], max_tokens=60)
    assert choice["finish_reason"] == "length"
    assert folded(client.chunks(tools=[ADD], max_tokens=60)) == whole(choice)


def test_without_tools_nothing_is_a_call(client):
    client.say(call("add", a=1, b=2))
    for fields in ({}, {"tools": [ADD], "tool_choice": "none"}):
        choice = client.choice(**fields)
        assert choice["message"]["content"] == call("add", a=1, b=2)
        assert "tool_calls" not in choice["message"]
        assert choice["finish_reason"] == "stop"
        assert client.tokenizer.tools is None


def test_a_client_that_takes_one_call_gets_one(client):
    for said in cuts(f"{call('ping')}\n{call('add', a=1, b=2)}", "</tool_call>"):
        client.say(*said)
        fields = {"tools": [ADD, PING], "parallel_tool_calls": False}
        choice = client.choice(**fields)
        (made,) = choice["message"]["tool_calls"]
        assert made["function"]["name"] == "ping"
        assert folded(client.chunks(**fields)) == whole(choice)


def test_only_allowed_tools_are_shown(client):
    client.say("x")
    allowed = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "ping"}}]}
    client.choice(
        tools=[ADD, PING], tool_choice={"type": "allowed_tools", "allowed_tools": allowed}
    )
    assert client.tokenizer.tools == [PING]


def test_the_first_delta_of_a_call_names_it_and_later_ones_go_on(client, monkeypatch):
    client.say(*cuts(call("add", a=1, b=2), "<tool_call>")[2])
    # Slower than its reader, which gets each token by itself.
    monkeypatch.setattr(client.server.engine.executor, "delay_s", 0.006)
    told = [
        one for delta in deltas(client.chunks(tools=[ADD])) for one in delta.get("tool_calls", ())
    ]
    assert (told[0]["id"][:5], told[0]["type"]) == ("call_", "function")
    assert told[0]["function"]["name"] == "add"
    assert len(told) > 3
    assert all("id" not in one and "name" not in one["function"] for one in told[1:])


def test_a_model_whose_template_shows_no_tools_refuses_them():
    with chat_client(TurnFormat()) as client:
        client.say("x")
        status, reply = client.post(CHAT, messages=USER, tools=[ADD])
        assert (status, reply["error"]["param"], reply["error"]["code"]) == (
            400,
            "tools",
            "no_tools",
        )
        assert client.server.worker.num_open_answers == 0
        assert client.choice(tools=[ADD], tool_choice="none")["message"]["content"] == "x"


def test_log_probabilities_stand_for_every_token(client):
    text = f"<think>\nö\n</think>\n\nA {call('add', a=1, b=2)}"
    client.say(*text)
    fields = {"tools": [ADD], "logprobs": True, "top_logprobs": 1}
    content = client.choice(**fields)["logprobs"]["content"]
    told = bytes(byte for row in content for byte in row["bytes"])
    assert told.decode() == text
    streamed = [
        row
        for chunk in client.chunks(**fields)
        for choice in chunk["choices"]
        for row in (choice["logprobs"] or {"content": []})["content"]
    ]
    assert streamed == content


PARTS = st.lists(
    st.sampled_from(
        [
            "<think>\n",
            "thought",
            "\n</think>\n\n",
            "text ",
            "ä🦊",
            call("add", a=1, b=2),
            call("note", text="</tool_call>"),
            call("nothing"),
            "<tool_call>",
            "\n</tool_call>",
            "{",
            "\n",
        ]
    ),
    max_size=6,
).map("".join)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(PARTS, st.lists(st.integers(1, 200), max_size=5), st.sampled_from([None, 3]))
def test_a_stream_adds_up_to_the_whole_reply(client, text, borders, max_tokens):
    client.say(*pieces(text, borders))
    fields = {"tools": [ADD, NOTE], "max_tokens": max_tokens}
    assert folded(client.chunks(**fields)) == whole(client.choice(**fields))


def test_history_with_calls_reaches_the_template_with_objects(client):
    client.say("x")
    function = {"name": "add", "arguments": '{"a": 1, "b": [2, null]}'}
    messages = [
        *USER,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
            "reasoning_content": "hm",
            "refusal": None,
        },
        {"role": "tool", "content": "3", "tool_call_id": "call_1", "name": "add"},
        {"role": "user", "content": "again", "name": "Bo"},
    ]
    for empty in (None, ""):
        messages[1]["content"] = empty
        client.ask(CHAT, messages=messages, tools=[ADD])
        said, result, last = client.tokenizer.messages[1:]
        assert said["content"] == ""
        assert said["reasoning_content"] == "hm"
        assert said["tool_calls"][0]["function"]["arguments"] == {"a": 1, "b": [2, None]}
        assert result == {"role": "tool", "content": "3", "tool_call_id": "call_1", "name": "add"}
        assert last["name"] == "Bo"
    del messages[1]["content"]
    client.ask(CHAT, messages=messages, tools=[ADD])


def test_effort_becomes_the_values_that_the_template_reads(client):
    client.say("x")
    for fields, wanted in (
        ({}, {}),
        ({"reasoning_effort": "none"}, {"enable_thinking": False}),
        ({"reasoning_effort": "xhigh"}, {"enable_thinking": True}),
        ({"chat_template_kwargs": {"enable_thinking": False}}, {"enable_thinking": False}),
    ):
        client.choice(**fields)
        assert client.tokenizer.template_values == wanted
    reply = client.server.client.post(
        CHAT, json={"messages": USER, "chat_template_kwargs": {"thinking_mode": "x"}}
    )
    assert "thinking_mode has no effect" in reply.headers["X-Paredown-Note"]


def test_a_thinking_budget_ends_reasoning(client, monkeypatch):
    """The end is written for the model, which goes on from there: this one says all again."""
    form = client.tokenizer.turn_format
    monkeypatch.setattr(type(form), "is_reasoning_open", lambda self, prompt: True)
    text = "abcdefgh\n</think>\n\nanswer"
    client.say(*cuts(text, "</think>")[2])
    for budget, thought in ((0, ""), (3, "abc"), (100, "abcdefgh"), (None, "abcdefgh")):
        message = client.choice(thinking_budget=budget)["message"]
        assert message.get("reasoning", "") == thought
        assert message["content"] == ("answer" if len(thought) == 8 else text)


def test_a_budget_is_noted_where_nothing_reasons():
    with chat_client(TurnFormat()) as client:
        client.say("x")
        reply = client.server.client.post(CHAT, json={"messages": USER, "thinking_budget": 3})
        assert "thinking_budget has no effect" in reply.headers["X-Paredown-Note"]


def test_log_probabilities_come_with_the_text_of_their_tokens(client):
    """Text that may begin reasoning is held back, and so are its tokens' log-probabilities."""
    client.say("\n", "<th", "is", " one", "\n", "ends")
    chunks = client.chunks(logprobs=True)
    told = [one for chunk in chunks for one in chunk["choices"] if one["logprobs"]]
    text = ""
    for one in told:
        text += one["delta"].get("content") or ""
        assert one["delta"].get("content")
    tokens = [token["token"] for one in told for token in one["logprobs"]["content"]]
    assert "".join(tokens) == text == "\n<this one\nends"
