"""A model that must call a tool calls one, whatever it would rather say: a grammar makes it."""

import json
from collections.abc import Iterator

import jsonschema
import pytest

from drivers.chat_client import (
    CHAT,
    TURN_FORMAT,
    USER,
    ChatClient,
    folded,
    tool,
    whole,
)
from drivers.running_server import running_server
from paredown.engine.llm import LLM

PAINT = tool(
    "paint",
    colour={"enum": ["red", "green"]},
    times={"type": "integer", "minimum": 0, "maximum": 9},
)
TOOLS = [PAINT, tool("wait", minutes={"type": "integer", "minimum": 0, "maximum": 59})]
NAMED = {"type": "function", "function": {"name": "paint"}}


@pytest.fixture(scope="module")
def client() -> Iterator[ChatClient]:
    """The built-in model, which has never seen a tool, with the format of one that has."""
    llm = LLM(None, num_pages=128, num_threads=1)
    llm.tokenizer.__dict__["turn_format"] = TURN_FORMAT
    with running_server(load=lambda _: llm.engine, tokenizer=llm.tokenizer) as server:
        yield ChatClient(server, llm.tokenizer)
    llm.engine.grammars.close()


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
@pytest.mark.parametrize("temperature", [0, 1.0])
def test_it_calls_a_tool_with_valid_arguments(client, choice, temperature):
    fields = {
        "tools": TOOLS,
        "tool_choice": choice,
        "parallel_tool_calls": False,
        "temperature": temperature,
        "seed": 3,
        "thinking_budget": 3,
        "max_tokens": 200,
    }
    reply = client.choice(**fields)
    (made,) = reply["message"]["tool_calls"]
    assert reply["finish_reason"] == "tool_calls"
    assert reply["message"]["content"] is None
    asked = {one["function"]["name"]: one["function"]["parameters"] for one in TOOLS}
    assert made["function"]["name"] in (["paint"] if choice == NAMED else asked)
    arguments = json.loads(made["function"]["arguments"])
    jsonschema.validate(arguments, asked[made["function"]["name"]])
    assert folded(client.chunks(**fields)) == whole(reply)


def test_a_response_and_a_message_may_have_to_call_one_too(client):
    function = {"type": "function", **PAINT["function"]}
    named = {"type": "function", "name": "paint"}
    response = client.ask(
        "/v1/responses",
        input="x",
        tools=[function],
        tool_choice=named,
        thinking_budget=3,
        temperature=0,
        max_output_tokens=200,
    )
    assert response["output"][-1]["type"] == "function_call"
    described = {"name": "paint", "input_schema": PAINT["function"]["parameters"]}
    message = client.ask(
        "/v1/messages",
        messages=USER,
        max_tokens=200,
        temperature=0,
        thinking={"type": "enabled", "budget_tokens": 3},
        tools=[described],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
    )
    assert message["stop_reason"] == "tool_use"
    assert message["content"][-1]["input"]["colour"] in ("red", "green")


def test_calls_come_before_a_form_of_the_text(client):
    shape = {"type": "json_object"}
    choice = client.choice(
        tools=[PAINT],
        tool_choice="required",
        response_format=shape,
        seed=2,
        thinking_budget=3,
        max_tokens=200,
    )
    assert choice["message"]["tool_calls"]


def test_a_strict_tool_with_a_keyword_that_is_not_kept_is_refused_by_name(client):
    strict = tool("f", a={"type": "string", "contentEncoding": "base64", "format": "odd"})
    strict["function"]["strict"] = True
    status, reply = client.post(CHAT, messages=USER, tools=[strict], tool_choice="required")
    assert status == 400
    assert reply["error"]["param"] == "tools"
    assert "odd" in reply["error"]["message"] or "contentEncoding" in reply["error"]["message"]


SHAPE = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": [1, 2]}}}


def test_text_of_a_form_may_follow_reasoning(client, monkeypatch):
    """This model does not end its reasoning by itself: the budget does."""
    monkeypatch.setattr(type(TURN_FORMAT), "is_reasoning_open", lambda self, prompt: True)
    fields = {"response_format": SHAPE, "thinking_budget": 4, "max_tokens": 200, "seed": 1}
    choice = client.choice(**fields)
    assert choice["message"]["content"] in ("1", "2")
    assert choice["message"]["reasoning"]
    assert folded(client.chunks(**fields)) == whole(choice)


def test_a_model_may_call_or_answer_in_the_form(client):
    for seed in range(3):
        message = client.choice(response_format=SHAPE, tools=[PAINT], max_tokens=200, seed=seed)[
            "message"
        ]
        assert message["content"] in ("1", "2") or message["tool_calls"]


def test_a_form_that_cannot_stand_beside_others_leaves_no_room(client, monkeypatch):
    monkeypatch.setattr(type(TURN_FORMAT), "is_reasoning_open", lambda self, prompt: True)
    message = client.choice(structured_outputs={"regex": "[ab]{3}"}, max_tokens=20)["message"]
    assert len(message["content"]) == 3
    assert "reasoning" not in message


def test_an_unknown_keyword_is_named_by_its_field(client):
    shape = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"format": "odd"}}}
    status, reply = client.post(CHAT, messages=USER, response_format=shape, tools=[PAINT])
    assert (status, reply["error"]["param"]) == (400, "response_format")
