"""The pieces of a stream make the message that the whole answer has."""

from typing import Any

import pytest
from tools.conformance.llama_cpp.streamed_message import streamed_message


def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def call(index: int, arguments: str, **first: Any) -> dict[str, Any]:
    function = {"arguments": arguments}
    if first:
        function["name"] = first["name"]
        return {"index": index, "id": first["id"], "type": "function", "function": function}
    return {"index": index, "function": function}


def test_texts_and_calls_are_put_together() -> None:
    chunks = [
        chunk({"role": "assistant", "content": None}),
        chunk({"reasoning_content": "so"}),
        chunk({"content": "a"}),
        chunk({"content": "b"}),
        chunk({"tool_calls": [call(0, '{"x"', id="c1", name="f")]}),
        chunk({"tool_calls": [call(0, ":1}")]}),
        chunk({"tool_calls": [call(1, "{}", id="c2", name="g")]}),
        chunk({}, "tool_calls"),
        {"choices": [], "usage": {}},
    ]
    (choice,) = streamed_message(chunks)["choices"]
    message = choice["message"]
    assert choice["finish_reason"] == "tool_calls"
    assert (message["content"], message["reasoning_content"]) == ("ab", "so")
    assert [one["function"] for one in message["tool_calls"]] == [
        {"name": "f", "arguments": '{"x":1}'},
        {"name": "g", "arguments": "{}"},
    ]


def test_what_did_not_come_is_null() -> None:
    (choice,) = streamed_message([chunk({"role": "assistant"}), chunk({}, "stop")])["choices"]
    message = choice["message"]
    assert message == {
        "role": "assistant",
        "content": None,
        "reasoning_content": None,
        "tool_calls": None,
    }


@pytest.mark.parametrize(
    "wrong",
    [
        chunk({"content": ""}),
        chunk({"tool_calls": [call(0, "{}", id="", name="f")]}),
        chunk({"tool_calls": [call(0, "{}", id="c", name="")]}),
        {"choices": []},
    ],
)
def test_what_no_stream_may_hold_is_noticed(wrong: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        streamed_message([wrong])
