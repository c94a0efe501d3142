"""The grammar of calls: it lets through what its format writes, and nothing that fails to parse."""

import json
import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer

from fakes.small_tokenizers import byte_level
from fakes.tool_formats import TOOL_FORMATS
from fakes.turns import Tool, Turn, read_turn, tool
from paredown.models.chat.reasoning_format import ReasoningFormat
from paredown.models.chat.tool_grammar import MAX_CALLS, ToolGrammar
from paredown.models.chat.turn_format import TurnFormat
from paredown.models.chat.written_calls import write_calls

ADD = tool("add", a={"type": "integer"}, b={"type": "boolean"})
NEAR = {"type": "array", "items": {"type": "null"}, "maxItems": 2}
UNIT: Tool = {
    "type": "function",
    "function": {
        "name": "unit",
        "parameters": {
            "$defs": {"Near": NEAR},
            "type": "object",
            "properties": {"name": {"enum": ["cm", "inch"]}, "near": {"$ref": "#/$defs/Near"}},
            "required": ["name", "near"],
        },
    },
}
PING: Tool = {"type": "function", "function": {"name": "ping"}}
TOOLS: list[Tool] = [ADD, UNIT, PING]
SPECIAL = ("[TOOL_CALLS]", "[ARGS]", "<|tool_call_begin|>", "<think>", "</think>")
THINK = ReasoningFormat(start="<think>", end="</think>")


# No special tokens, but llguidance takes all that is written as a tag for one.
TAGS = ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_value>", "</function>")
LIBRARY = byte_level(*SPECIAL)
LIBRARY.add_tokens(list(TAGS))
CONTROL_IDS = {text: LIBRARY.token_to_id(text) for text in (*SPECIAL, *TAGS)}
END = LIBRARY.token_to_id("</s>")
ENDS = {END, *LIBRARY.encode('}]",').ids}
TOKENIZER = LLTokenizer(LIBRARY.to_str(), eos_token=END)


def matcher(grammar: str) -> LLMatcher:
    made = LLMatcher(TOKENIZER, LLMatcher.grammar_from_lark(grammar))
    assert not made.is_error(), made.get_error()
    return made


def accepts(grammar: str, text: str) -> bool:
    found = matcher(grammar)
    return found.consume_tokens(LIBRARY.encode(text).ids) and found.is_accepting()


def some_text(grammar: str, seed: int) -> str:
    """Returns a text that the grammar lets through, drawn a token at a time."""
    found, draw = matcher(grammar), random.Random(seed)
    ids: list[int] = []
    while not found.is_stopped():
        bits = np.frombuffer(found.compute_bitmask(), dtype=np.uint8)
        allowed = np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist()
        # Ends come half of the time, so that texts are short.
        ends = [one for one in allowed if one in ENDS]
        token = draw.choice(ends) if ends and draw.random() < 0.5 else draw.choice(allowed)
        if token == END:
            break
        ids.append(token)
        assert found.consume_tokens([token])
    return LIBRARY.decode(ids, skip_special_tokens=False)


def checked(turn: Turn, names: Sequence[str]) -> None:
    assert turn.content == ""
    assert turn.names
    assert len(turn.names) <= MAX_CALLS
    for name, text in zip(turn.names, turn.arguments, strict=True):
        assert name in names
        arguments = json.loads(text)
        match name:
            case "add":
                assert {key: type(value) for key, value in arguments.items()} == {
                    "a": int,
                    "b": bool,
                }
            case "unit":
                assert arguments["name"] in ("cm", "inch")
                assert arguments["near"] in ([], [None], [None, None])
            case _:
                assert arguments == {}


@pytest.mark.parametrize("name", TOOL_FORMATS)
def test_what_a_format_writes_is_let_through(name: str) -> None:
    form = TOOL_FORMATS[name]
    grammar = ToolGrammar(tool_format=form, control_ids=CONTROL_IDS)
    one: list[tuple[str, Mapping[str, object]]] = [("add", {"a": -12, "b": True})]
    two = [*one, ("unit", {"name": "cm", "near": [None]})]
    assert accepts(grammar.text(TOOLS), write_calls(form, one))
    assert accepts(grammar.text(TOOLS), write_calls(form, two)) == form.is_parallel
    assert accepts(grammar.text(TOOLS), write_calls(form, [("ping", {})]))
    assert not accepts(grammar.text(TOOLS, parallel=False), write_calls(form, two))
    assert accepts(grammar.text(TOOLS, name="add"), write_calls(form, one))
    assert not accepts(grammar.text(TOOLS, name="unit"), write_calls(form, one))
    assert not accepts(grammar.text(TOOLS), write_calls(form, [("other", {})]))
    assert not accepts(grammar.text(TOOLS), write_calls(form, [("add", {"a": "x", "b": True})]))
    assert not accepts(grammar.text(TOOLS), "")
    assert not accepts(grammar.text(TOOLS), "Hello.")


@pytest.mark.parametrize("name", TOOL_FORMATS)
@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_let_through_is_read_as_calls(name: str, seed: int) -> None:
    form = TOOL_FORMATS[name]
    text = some_text(ToolGrammar(tool_format=form, control_ids=CONTROL_IDS).text(TOOLS), seed)
    checked(read_turn(TurnFormat(tool_format=form), text, TOOLS), ["add", "unit", "ping"])


@pytest.mark.parametrize("opens", [True, False])
@pytest.mark.parametrize("control_ids", [CONTROL_IDS, {}])
def test_reasoning_may_come_first(opens: bool, control_ids: dict[str, int]) -> None:
    form = TOOL_FORMATS["tag_json"]
    # Without ids the marks are no tokens; then text spells them.
    library = LIBRARY if control_ids else byte_level()
    made = ToolGrammar(
        tool_format=form, control_ids=control_ids, reasoning=THINK, opens_reasoning=opens
    ).text(TOOLS)
    calls = write_calls(form, [("add", {"a": 1, "b": False})])
    found = LLMatcher(LLTokenizer(library.to_str(), eos_token=1), LLMatcher.grammar_from_lark(made))
    text = ("" if opens else "<think>") + "\nI add < é.\n</think>\n\n" + calls
    assert found.consume_tokens(library.encode(text).ids), found.get_error()
    assert found.is_accepting()
    turn = read_turn(
        TurnFormat(tool_format=form, reasoning=THINK), [text], TOOLS, reasoning_open=opens
    )
    assert (turn.reasoning, turn.names) == ("I add < é.", ["add"])


def test_texts_of_tagged_arguments_are_free() -> None:
    note = tool("note", text={"type": "string"}, more={"type": "integer"})
    for name in ("tagged", "key_value", "invoke"):
        form = TOOL_FORMATS[name]
        grammar = ToolGrammar(tool_format=form, control_ids=CONTROL_IDS).text([note])
        text = write_calls(form, [("note", {"text": 'a "b"\n\\ <c> é', "more": 5})])
        assert accepts(grammar, text)


def test_arguments_that_are_not_required_may_be_missing() -> None:
    parameters = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["b"],
    }
    some: Tool = {"type": "function", "function": {"name": "some", "parameters": parameters}}
    for name in ("tag_json", "tagged", "key_value", "invoke"):
        form = TOOL_FORMATS[name]
        grammar = ToolGrammar(tool_format=form, control_ids=CONTROL_IDS).text([some])
        assert accepts(grammar, write_calls(form, [("some", {"b": 1})]))
        assert accepts(grammar, write_calls(form, [("some", {"a": 2, "b": 1})]))
        assert not accepts(grammar, write_calls(form, [("some", {"a": 2})]))
        assert not accepts(grammar, write_calls(form, [("some", {"b": 1, "c": 1})]))


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_keyword_that_cannot_be_enforced_is_an_error_for_strict_tools(is_strict: bool) -> None:
    function = {
        "name": "f",
        "strict": is_strict,
        "parameters": {"type": "object", "properties": {"a": {"not": {"type": "null"}}}},
    }
    grammar = ToolGrammar(tool_format=TOOL_FORMATS["tag_json"], control_ids=CONTROL_IDS).text(
        [{"type": "function", "function": function}]
    )
    found = LLMatcher(TOKENIZER, LLMatcher.grammar_from_lark(grammar), log_level=0)
    assert found.is_error() == is_strict
    assert "not" in found.get_error() or not is_strict


def test_names_and_keys_are_quoted() -> None:
    odd = tool('a"b', **{'k"é': {"type": "integer"}})
    form = TOOL_FORMATS["tag_json"]
    grammar = ToolGrammar(tool_format=form, control_ids=CONTROL_IDS).text([odd])
    assert accepts(grammar, write_calls(form, [('a"b', {'k"é': 1})]))
