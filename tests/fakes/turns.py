"""Parses a turn in pieces, and joins what comes out."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from fakes.tool_formats import TAG_JSON, TOOL_FORMATS
from paredown.models.chat.reasoning_format import ReasoningFormat
from paredown.models.chat.turn_format import TurnFormat
from paredown.models.chat.turn_parser import (
    CallArguments,
    CallStart,
    Content,
    Reasoning,
    TurnEvent,
)

Tool = Mapping[str, object]


def tool(name: str, **properties: object) -> Tool:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


ADD = tool("add", a={"type": "integer"}, b={"type": "integer"})
NOTE = tool("note", text={"type": "string"})
PING: Tool = {"type": "function", "function": {"name": "ping"}}
# A name that begins another, and every type.
ADD_ALL = tool(
    "add_all",
    text={"type": "string"},
    number={"type": "number"},
    flag={"type": "boolean"},
    items={"type": "array"},
    inner={"type": "object"},
    maybe={"type": ["string", "null"]},
    free={},
)
TOOLS = [ADD, NOTE, PING, ADD_ALL]
THINK = ReasoningFormat(start="<think>", end="</think>")
HERMES = TurnFormat(tool_format=TAG_JSON, reasoning=THINK)
FORMATS = {name: TurnFormat(tool_format=form) for name, form in TOOL_FORMATS.items()}


@dataclass
class Turn:
    """A whole turn, as a client has it."""

    content: str = ""
    reasoning: str = ""
    names: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    # Kinds in their order, each once in a row.
    order: list[str] = field(default_factory=list)

    def add(self, event: TurnEvent) -> None:
        match event:
            case Content(text):
                self.content += text
            case Reasoning(text):
                self.reasoning += text
            case CallStart(index, name):
                assert index == len(self.names)
                self.names.append(name)
                self.arguments.append("")
            case CallArguments(index, text):
                assert index == len(self.names) - 1
                self.arguments[index] += text
        kind = type(event).__name__
        if self.order[-1:] != [kind]:
            self.order.append(kind)


def read_turn(
    form: TurnFormat,
    pieces: Iterable[str],
    tools: Sequence[Tool],
    *,
    reasoning_open: bool = False,
) -> Turn:
    parser = form.parser(tools=tools, reasoning_open=reasoning_open)
    turn = Turn()
    for piece in pieces:
        for event in parser.feed(piece):
            assert not isinstance(event, Content | Reasoning | CallArguments) or event.text
            turn.add(event)
    for event in parser.finish():
        turn.add(event)
    assert parser.num_calls == len(turn.names)
    assert parser.finish() == []
    return turn


def cut(text: str, places: Iterable[int]) -> list[str]:
    borders = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[i:j] for i, j in pairwise(borders)]


def loaded(turn: Turn) -> list[tuple[str, object]]:
    return [(name, json.loads(text)) for name, text in zip(turn.names, turn.arguments, strict=True)]
