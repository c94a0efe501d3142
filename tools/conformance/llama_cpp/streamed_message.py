"""A chat completion put together from its streamed pieces."""

from collections.abc import Iterable, Mapping
from typing import Any

_TEXTS = ("content", "reasoning_content")


def streamed_message(chunks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the completion of one choice. Asserts what holds for every stream: no piece is empty,
    a call begins with its id and name, and the last chunk tells the usage if it has no choice."""
    texts: dict[str, str | None] = dict.fromkeys(_TEXTS)
    calls: list[dict[str, Any]] = []
    finish_reason = None
    for chunk in chunks:
        if not chunk["choices"]:
            assert "usage" in chunk, chunk
            continue
        (choice,) = chunk["choices"]
        finish_reason = choice.get("finish_reason") or finish_reason
        delta = choice["delta"]
        for name in _TEXTS:
            piece = delta.get(name)
            if piece is not None:
                assert piece, f"an empty piece of {name}: {chunk}"
                texts[name] = (texts[name] or "") + piece
        for piece in delta.get("tool_calls") or ():
            _add_call(calls, piece)
    message = {"role": "assistant", **texts, "tool_calls": calls or None}
    return {"choices": [{"index": 0, "finish_reason": finish_reason, "message": message}]}


def _add_call(calls: list[dict[str, Any]], piece: Mapping[str, Any]) -> None:
    index, function = piece["index"], piece["function"]
    if index == len(calls):
        assert piece["id"], piece
        assert piece["type"] == "function", piece
        assert function["name"], piece
        calls.append(
            {
                "id": piece["id"],
                "type": "function",
                "function": {"name": function["name"], "arguments": ""},
            }
        )
    calls[index]["function"]["arguments"] += function.get("arguments") or ""
