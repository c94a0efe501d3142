"""The Responses API: events in order, a store that is bounded, and cases of new-rooms (A11)."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drivers.chat_client import ADD, NOTE, call, chat_client
from fakes.scripted_chat import pieces

PATH = "/v1/responses"


def flat(tool):
    return {"type": "function", **tool["function"]}


@pytest.fixture(scope="module")
def client():
    with chat_client() as running:
        yield running


def bare(response):
    """A response without what is drawn or timed anew for each request."""
    text = json.dumps(response)
    for item in response["output"]:
        for key in ("id", "call_id"):
            if key in item:
                text = text.replace(item[key], f"<{key}>")
    found = json.loads(text.replace(response["id"], "<id>"))
    return {name: one for name, one in found.items() if not name.endswith("_at")}


def folded(events):
    """The items of a response, put together from the deltas of its stream."""
    items = []
    for name, event in events:
        assert name == event["type"]
        kind = name.removeprefix("response.")
        if kind == "output_item.added":
            assert event["output_index"] == len(items)
            items.append({"type": event["item"]["type"], "text": "", "is_open": True})
        elif kind.endswith(".delta"):
            assert items[event["output_index"]]["is_open"]
            items[event["output_index"]]["text"] += event["delta"]
        elif kind in ("output_text.done", "reasoning_text.done"):
            assert event["text"] == items[event["output_index"]]["text"]
        elif kind == "function_call_arguments.done":
            assert event["arguments"] == items[event["output_index"]]["text"]
        elif kind == "output_item.done":
            items[event["output_index"]] |= {"is_open": False, "status": event["item"]["status"]}
    assert not any(one.pop("is_open") for one in items)
    return items


def told(response):
    """The same of a whole response."""
    found = []
    for item in response["output"]:
        text = item["arguments"] if "arguments" in item else item["content"][0]["text"]
        found.append({"type": item["type"], "text": text, "status": item["status"]})
    return found


def test_an_answer_that_is_cut_is_incomplete(client):
    """A11."""
    client.say("one ", "two ", "three ", "four ")
    events = [event for _, event in client.events(PATH, input="x", max_output_tokens=3)]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "response.incomplete"
    for response in (events[-1]["response"], client.ask(PATH, input="x", max_output_tokens=3)):
        assert response["status"] == response["output"][-1]["status"] == "incomplete"
        assert response["incomplete_details"] == {"reason": "max_output_tokens"}
        assert response["output"][-1]["content"][0]["text"] == "one two three "


def test_an_empty_reasoning_item_of_the_client_is_nothing(client):
    """A11."""
    client.say("x")
    message = {"role": "user", "content": [{"type": "input_text", "text": "x"}]}
    empty = {"type": "reasoning", "id": "r1", "summary": []}
    counts = {
        client.ask(PATH, input=items)["usage"]["input_tokens"]
        for items in ([message], [empty, message], "x")
    }
    assert len(counts) == 1


def test_events_come_in_order(client):
    text = f"<think>\nhm\n</think>\n\nI ask. {call('add', a=1, b=2)}"
    client.say(text)
    names = [name for name, _ in client.events(PATH, input="x", tools=[flat(ADD)])]
    assert names == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]


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
@given(PARTS, st.lists(st.integers(1, 200), max_size=5), st.sampled_from([None, 3]))
def test_a_stream_adds_up_to_the_whole_response(client, text, borders, most):
    client.say(*pieces(text, borders))
    body = {"input": "x", "tools": [flat(ADD), flat(NOTE)], "max_output_tokens": most}
    events, response = client.events(PATH, **body), client.ask(PATH, **body)
    assert folded(events) == told(response)
    assert bare(events[-1][1]["response"]) == bare(response)


def test_a_conversation_goes_on_from_a_stored_response(client):
    client.say(f"<think>\nhm\n</think>\n\n{call('add', a=1, b=2)}")
    first = client.ask(PATH, input="x", tools=[flat(ADD)], instructions="Be brief.")
    (made,) = [one for one in first["output"] if one["type"] == "function_call"]
    result = {"type": "function_call_output", "call_id": made["call_id"], "output": "3"}
    client.say("It is 3.")
    second = client.ask(PATH, input=[result], previous_response_id=first["id"], tools=[flat(ADD)])
    stored = list(client.tokenizer.messages)
    assert second["previous_response_id"] == first["id"]
    assert [one["role"] for one in stored] == ["user", "assistant", "tool"]
    # The same as if the client had sent all of it back.
    items = [{"role": "user", "content": "x"}, *first["output"], result]
    client.ask(PATH, input=items, tools=[flat(ADD)])
    assert client.tokenizer.messages == stored
    assert stored[1]["reasoning_content"] == "hm"
    # And as if it had named each item.
    named = [{"type": "item_reference", "id": one["id"]} for one in first["output"]]
    del named[0]["type"]
    client.ask(PATH, input=[items[0], *named, result], tools=[flat(ADD)])
    assert client.tokenizer.messages == stored
    status, reply = client.post(PATH, input=[{"type": "item_reference", "id": "nothing"}])
    assert (status, reply["error"]["param"]) == (404, "input")


def test_stored_responses_are_shown_listed_and_deleted(client):
    client.say("x")
    response = client.ask(PATH, input=[{"role": "user", "content": f"{i}"} for i in range(3)])
    http, path = client.server.client, f"{PATH}/{response['id']}"
    assert http.get(path).json() == response
    listed = http.get(f"{path}/input_items", params={"limit": 2}).json()
    assert [one["content"] for one in listed["data"]] == ["2", "1"]
    assert listed["has_more"]
    rest = http.get(f"{path}/input_items", params={"after": listed["last_id"]}).json()
    assert [one["content"] for one in rest["data"]] == ["0"]
    assert not rest["has_more"]
    for query in ({"limit": "0"}, {"limit": "x"}, {"after": "nowhere"}, {"order": "up"}):
        assert http.get(f"{path}/input_items", params=query).status_code == 400
    assert http.delete(path).json() == {"id": response["id"], "object": "response", "deleted": True}
    assert http.get(path).status_code == http.delete(path).status_code == 404
    status, reply = client.post(PATH, input="x", previous_response_id=response["id"])
    assert (status, reply["error"]["param"]) == (404, "previous_response_id")


def test_what_answers_under_way_keep_of_their_texts_is_bounded(client, monkeypatch):
    client.say(*["word "] * 50)
    texts = client.server.state.intake.kept_texts
    monkeypatch.setattr(texts, "most", 30_000)
    monkeypatch.setattr(client.server.engine.executor, "delay_s", 0.01)
    body = {"model": "toy", "input": "x" * 2000, "stream": True}
    http = client.server.client
    with http.stream("POST", PATH, json=body) as running:
        lines = running.iter_lines()
        next(lines)
        assert 4000 < texts.num_held < 30_000
        list(lines)
    client.server.wait_until(lambda: not texts.num_held)
    monkeypatch.setattr(texts, "most", 3000)
    reply = http.post(PATH, json={"input": "x" * 2000})
    assert (reply.status_code, reply.json()["error"]["code"]) == (429, "queue_full")
    assert http.post(PATH, json={"input": "x" * 2000, "store": False}).status_code == 200
    client.server.wait_until(lambda: not client.server.worker.num_open_answers)
    assert not texts.num_held


def test_what_shall_not_be_stored_is_not(client):
    client.say("x")
    response = client.ask(PATH, input="x", store=False)
    assert response["store"] is False
    assert client.server.client.get(f"{PATH}/{response['id']}").status_code == 404


def test_the_tokens_of_a_prompt_are_counted(client):
    client.say("x")
    body = {"input": "hello", "instructions": "Be brief.", "tools": [flat(ADD)]}
    counted = client.ask(f"{PATH}/input_tokens", **body)
    response = client.ask(PATH, **body)
    assert counted["input_tokens"] == response["usage"]["input_tokens"]
    assert counted["object"] == "response.input_tokens"


def test_a_failure_is_the_last_event(client, monkeypatch):
    client.say("one ", "two ")

    def fail(token_id):
        raise RuntimeError("injected failure")

    monkeypatch.setattr(client.server.engine.executor, "_row", fail)
    reply = client.post(PATH, input="x")
    assert reply[0] == 500
    # Where nothing has come yet, even a stream is an error; later it is an event.
    monkeypatch.undo()
    assert client.ask(PATH, input="x")["status"] == "completed"


ITEM = {"role": "user", "content": "x"}
BAD = [
    ({}, "input"),
    ({"input": []}, "input"),
    ({"input": 3}, "input"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input"),
    ({"input": [{"type": "item_reference"}]}, "input"),
    ({"input": [{"type": "web_search_call", "id": "1"}]}, "input"),
    ({"input": [{"type": "function_call", "name": "f"}]}, "input"),
    ({"input": [{"role": "tool", "content": "x"}]}, "input"),
    ({"input": [ITEM] * 4097}, "input"),
    ({"input": "x", "tools": [{"type": "web_search"}]}, "tools"),
    ({"input": "x", "tools": [{"type": "mcp", "server_label": "s"}]}, "tools"),
    ({"input": "x", "tools": [{"type": "custom", "name": "f"}]}, "tools"),
    ({"input": "x", "tools": [flat(ADD)] * 2}, "tools"),
    ({"input": "x", "tools": [flat(ADD)], "tool_choice": {"type": "web_search"}}, "tool_choice"),
    ({"input": "x", "tool_choice": "required"}, "tool_choice"),
    ({"input": "x", "background": True}, "background"),
    ({"input": "x", "conversation": "c"}, "conversation"),
    ({"input": "x", "prompt": {"id": "p"}}, "prompt"),
    ({"input": "x", "truncation": "auto"}, "truncation"),
    ({"input": "x", "max_tool_calls": 3}, "max_tool_calls"),
    ({"input": "x", "context_management": [{"type": "compaction"}]}, "context_management"),
    ({"input": "x", "include": ["message.output_text.logprobs"]}, "include"),
    ({"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
    ({"input": "x", "temperature": -1}, "temperature"),
    ({"input": "x", "reasoning": {"effort": "extreme"}}, "reasoning"),
    ({"input": "x", "text": {"format": {"type": "xml"}}}, "text"),
    ({"input": "x", "previous_response_id": 3}, "previous_response_id"),
    ({"input": "x", "metadata": {"a": 3}}, "metadata"),
    ({"input": "x", "nothing": 3}, "nothing"),
]


@pytest.mark.parametrize(("body", "param"), BAD, ids=lambda value: str(value)[:60])
def test_a_bad_field_is_named(client, body, param):
    status, reply = client.post(PATH, **body)
    assert (status, reply["error"]["param"]) == (400, param), reply


def test_what_asks_for_nothing_is_accepted(client):
    client.say("x")
    body = {
        "background": False,
        "truncation": "disabled",
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "metadata": {"a": "b"},
        "service_tier": "auto",
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "conversation": None,
    }
    response = client.ask(PATH, input="x", **body)
    assert response["metadata"] == {"a": "b"}
    assert response["reasoning"] == {"effort": "low", "summary": "auto"}
