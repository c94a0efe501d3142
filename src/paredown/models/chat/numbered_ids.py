"""Ids of calls as templates want them that write the id in place of the name (Kimi K2)."""

from collections.abc import Mapping, Sequence


def with_numbered_ids(messages: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """Returns the messages with ids "functions.NAME:NUMBER", where calls are counted through the
    conversation. A result of a tool has the id of the last call with its own; one without a call
    keeps what it has."""
    known: dict[object, str] = {}
    num_calls = 0
    made: list[dict[str, object]] = []
    for message in messages:
        message = dict(message)
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            numbered = [_numbered_id(call, num_calls + i) for i, call in enumerate(calls)]
            known |= {call["id"]: new for call, new in zip(calls, numbered, strict=True)}
            message["tool_calls"] = [
                {**call, "id": new} for call, new in zip(calls, numbered, strict=True)
            ]
            num_calls += len(calls)
        if (call_id := message.get("tool_call_id")) in known:
            message["tool_call_id"] = known[call_id]
        made.append(message)
    return made


def _numbered_id(call: Mapping[str, Mapping[str, object]], number: int) -> str:
    return f"functions.{call['function']['name']}:{number}"
