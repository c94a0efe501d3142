"""A server of a scripted model, and what a client puts together of its answers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from drivers.running_server import NUM_PAGES, Running, running_server
from fakes.scripted_chat import ScriptedExecutor, ScriptedTokenizer
from paredown.models.chat.reasoning_format import ReasoningFormat
from paredown.models.chat.tool_format import Around, JsonCall, ToolFormat
from paredown.models.chat.turn_format import TurnFormat

CHAT = "/v1/chat/completions"
TURN_FORMAT = TurnFormat(
    tool_format=ToolFormat(
        body=JsonCall(), call=Around(start="<tool_call>\n", end="\n</tool_call>"), between="\n"
    ),
    reasoning=ReasoningFormat(start="<think>", end="</think>"),
)
USER = [{"role": "user", "content": "x"}]


def tool(name: str, **properties: object) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


ADD = tool("add", a={"type": "integer"}, b={"type": "integer"})
NOTE = tool("note", text={"type": "string"})
PING = {"type": "function", "function": {"name": "ping"}}


def call(name: str, **arguments: object) -> str:
    """The text of a call, as a model writes it."""
    written = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{written}\n</tool_call>"


@dataclass
class ChatClient:
    server: Running
    tokenizer: ScriptedTokenizer

    def say(self, *pieces: str | bytes) -> None:
        self.tokenizer.say(*pieces)

    def post(self, path: str, **body: object) -> tuple[int, dict[str, Any]]:
        reply = self.server.client.post(path, json={"model": "toy", **body})
        return reply.status_code, reply.json()

    def ask(self, path: str, **body: object) -> dict[str, Any]:
        status, reply = self.post(path, **body)
        assert status == 200, reply
        return reply

    def events(self, path: str, **body: object) -> list[tuple[str | None, Any]]:
        """The events of a stream, each a name and an object, without [DONE]."""
        body = {"model": "toy", **body, "stream": True}
        found: list[tuple[str | None, Any]] = []
        name = None
        with self.server.client.stream("POST", path, json=body) as reply:
            for line in reply.iter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: ") and "[DONE]" not in line:
                    found.append((name, json.loads(line.removeprefix("data: "))))
                    name = None
            assert reply.status_code == 200
        return found

    def chunks(self, **body: object) -> list[dict[str, Any]]:
        return [chunk for _, chunk in self.events(CHAT, messages=USER, **body)]

    def choice(self, **body: object) -> dict[str, Any]:
        return self.ask(CHAT, messages=USER, **body)["choices"][0]


@contextmanager
def chat_client(form: TurnFormat = TURN_FORMAT, **options: Any) -> Iterator[ChatClient]:
    tokenizer = ScriptedTokenizer()
    tokenizer.turn_format = form
    tokenizer.template_value_names = frozenset(["enable_thinking"])
    executor = ScriptedExecutor(tokenizer, NUM_PAGES * 8)
    with running_server(executor=executor, tokenizer=tokenizer, **options) as server:
        yield ChatClient(server, tokenizer)


def deltas(chunks: list[dict[str, Any]], number: int = 0) -> list[dict[str, Any]]:
    return [one["delta"] for chunk in chunks for one in chunk["choices"] if one["index"] == number]


def joined(chunks: list[dict[str, Any]], key: str = "content", number: int = 0) -> str:
    return "".join(delta.get(key) or "" for delta in deltas(chunks, number))


def ends(chunks: list[dict[str, Any]], number: int = 0) -> list[str]:
    return [
        one["finish_reason"]
        for chunk in chunks
        for one in chunk["choices"]
        if one["index"] == number and one["finish_reason"]
    ]


def calls(chunks: list[dict[str, Any]], number: int = 0) -> list[dict[str, Any]]:
    """Joins the calls of a stream, each with all ids that were told."""
    found: dict[int, dict[str, Any]] = {}
    for delta in deltas(chunks, number):
        for one in delta.get("tool_calls") or []:
            got = found.setdefault(one["index"], {"ids": [], "name": "", "arguments": ""})
            function = one.get("function") or {}
            got["ids"] += [one["id"]] if one.get("id") else []
            got["name"] += function.get("name") or ""
            got["arguments"] += function.get("arguments") or ""
    assert sorted(found) == list(range(len(found)))
    return [found[index] for index in sorted(found)]


def folded(chunks: list[dict[str, Any]], number: int = 0) -> dict[str, Any]:
    """The message and the end of a choice, put together from a stream. Ids are drawn anew for each
    request, so that their number stands for them."""
    found = calls(chunks, number)
    return {
        "content": joined(chunks, number=number),
        "reasoning": joined(chunks, "reasoning", number),
        "reasoning_content": joined(chunks, "reasoning_content", number),
        "calls": [(len(one["ids"]), one["name"], one["arguments"]) for one in found],
        "finish_reason": ends(chunks, number),
    }


def whole(choice: dict[str, Any]) -> dict[str, Any]:
    """The same of a whole reply."""
    message = choice["message"]
    functions = [one["function"] for one in message.get("tool_calls", [])]
    return {
        "content": message["content"] or "",
        "reasoning": message.get("reasoning", ""),
        "reasoning_content": message.get("reasoning_content", ""),
        "calls": [(1, one["name"], one["arguments"]) for one in functions],
        "finish_reason": [choice["finish_reason"]],
    }
