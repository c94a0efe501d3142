"""Ids that a template writes in place of names."""

from pathlib import Path

from paredown.models.chat.numbered_ids import with_numbered_ids
from paredown.models.text.chat_templates import ChatTemplates

TEMPLATE = Path(__file__).parent / "templates" / "numbered.jinja"


def call(call_id: str, name: str) -> dict[str, object]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": {}}}


def test_calls_are_counted_and_results_follow_them() -> None:
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "tool_calls": [call("call_a", "add"), call("call_b", "note")]},
        {"role": "tool", "tool_call_id": "call_b", "content": "1"},
        {"role": "tool", "tool_call_id": "call_z", "content": "2"},
        {"role": "assistant", "tool_calls": [call("call_a", "add")]},
        {"role": "tool", "tool_call_id": "call_a", "content": "3"},
    ]
    made = with_numbered_ids(messages)
    ids = [one["id"] for message in made for one in message.get("tool_calls", [])]  # type: ignore[attr-defined]
    assert ids == ["functions.add:0", "functions.note:1", "functions.add:2"]
    results = [message["tool_call_id"] for message in made if "tool_call_id" in message]
    assert results == ["functions.note:1", "call_z", "functions.add:2"]
    assert messages[1]["tool_calls"] == [call("call_a", "add"), call("call_b", "note")]
    templates = ChatTemplates(TEMPLATE.read_text(), "numbered")
    text = templates.render(made[:2], tools=None, special_tokens={})
    assert "<|tool_call_begin|>functions.note:1<|tool_call_argument_begin|>{}" in text
