"""Turns in pieces: the same events at every cut, nothing lost, calls as the model wrote them."""

import json

import pytest

from fakes.tool_formats import TAG_JSON, TOOL_FORMATS
from fakes.turns import FORMATS, HERMES, TOOLS, Turn, loaded, read_turn
from paredown.models.chat.tool_format import JsonCall, ToolFormat
from paredown.models.chat.turn_format import TurnFormat
from paredown.models.chat.turn_parser import CallArguments, CallStart, Content
from paredown.models.chat.written_calls import write_calls

BARE = FORMATS["bare_json"]
TAGGED = FORMATS["tagged"]


def call(name: str, **arguments: object) -> str:
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def every_cut(form: TurnFormat, text: str, reasoning_open: bool = False) -> Turn:
    """Reads `text` whole, a character a piece and in every two pieces; all must agree."""
    whole = read_turn(form, [text], TOOLS, reasoning_open=reasoning_open)
    cuts = [list(text), *([text[:i], text[i:]] for i in range(1, len(text)))]
    for pieces in cuts:
        assert read_turn(form, pieces, TOOLS, reasoning_open=reasoning_open) == whole, pieces
    return whole


def test_reasoning_content_and_calls_come_in_order() -> None:
    text = f"<think>\nI add.\n</think>\n\nSo:\n{call('add', a=1, b=2)}\n{call('note', text='x')}"
    turn = every_cut(HERMES, text)
    assert turn.order[:2] == ["Reasoning", "Content"]
    assert (turn.reasoning, turn.content) == ("I add.", "So:")
    assert loaded(turn) == [("add", {"a": 1, "b": 2}), ("note", {"text": "x"})]


def test_reasoning_without_its_end_is_reasoning() -> None:
    turn = every_cut(HERMES, "I think </thin", reasoning_open=True)
    assert (turn.reasoning, turn.content) == ("I think </thin", "")


def test_a_mark_of_reasoning_later_in_the_turn_is_content() -> None:
    text = "Write <think> and </think> around it."
    assert every_cut(HERMES, text).content == text


def test_letters_beyond_ascii_stay_as_the_model_wrote_them() -> None:
    turn = every_cut(HERMES, call("note", text="Zoë 東京 🦊"))
    assert turn.arguments == ['{"text": "Zoë 東京 🦊"}']


def test_a_marker_inside_a_text_ends_no_call() -> None:
    wanted = {"text": "a </tool_call> b <tool_call> c"}
    turn = every_cut(HERMES, call("note", **wanted))
    assert loaded(turn) == [("note", wanted)]
    assert turn.content == ""


def test_an_end_tag_inside_a_tagged_text_ends_no_argument() -> None:
    text = (
        "<tool_call>\n<function=note>\n<parameter=text>\na </parameter> b </function> c\n"
        "</parameter>\n</function>\n</tool_call>"
    )
    assert loaded(every_cut(TAGGED, text)) == [("note", {"text": "a </parameter> b </function> c"})]


def test_content_before_between_and_behind_calls_is_kept() -> None:
    text = f"One.\n{call('ping')}\nTwo.\n{call('ping')}\n\nThree. \n"
    turn = every_cut(HERMES, text)
    assert turn.content == "One.\nTwo.\n\nThree. \n"
    assert turn.order == ["Content", "CallStart", "CallArguments"] * 2 + ["Content"]


@pytest.mark.parametrize(
    "text",
    [
        "a < b and <tool is no marker",
        "<tool_call",
        "<tool_call>",
        "Use <tool_call> tags.",
        call("unknown", a=1),
        call("add", a=1).replace("{", "(", 1),
        '<tool_call>\n{"name": "add"',
        '<tool_call>\n{"name": "add", "arguments": [1]}\n</tool_call>',
        '<tool_call>\n{"arguments": {"a": 1}}\n</tool_call>',
        '<tool_call>\n{"name": 5, "arguments": {"a": 1}}\n</tool_call>',
        '<tool_call>\n{"arguments": {"a": 1}, "name": "unknown"}\n</tool_call>',
        '<tool_call>\n{"name": "add", "arguments": "no JSON"}\n</tool_call>',
        ' \n{"name": "other", "arguments": {}}',
        "[note](a link)",
        "trailing blanks \n ",
    ],
)
def test_what_is_no_call_stays_content_with_its_markers(text: str) -> None:
    turn = every_cut(HERMES, text)
    assert (turn.content, turn.names) == (text, [])


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n<function=unknown>\n</function>\n</tool_call>",
        "<tool_call>\n<function=add_more>\n</function>\n</tool_call>",
        "<tool_call>\n<function=add>\nwhat\n</function>",
        "<function=",
        "{}",
    ],
)
def test_what_is_no_tagged_call_stays_content(text: str) -> None:
    turn = every_cut(TAGGED, text)
    assert (turn.content, turn.names) == (text, [])


@pytest.mark.parametrize(
    ("text", "arguments", "content"),
    [
        # A cut: the arguments end where the text does.
        (call("add", a=1)[:-15], '{"a": 1', ""),
        ('<tool_call>\n{"name": "note", "arguments": {"text": "x', '{"text": "x', ""),
        # No JSON: the rest of the call follows as it is.
        (call("add", a=1).replace("1", "one!"), '{"a": one!}}\n', ""),
        (call("add", a=1).replace("1", "01") + " So.", '{"a": 01}}\n', " So."),
        # Behind whole arguments, what does not belong there is content.
        (call("add", a=1).replace("}}", "} oops}"), '{"a": 1}', " oops}\n</tool_call>"),
        # A missing end.
        (call("add", a=1).removesuffix("\n</tool_call>"), '{"a": 1}', ""),
    ],
)
def test_damage_behind_the_start_of_a_call_shows_in_its_arguments(
    text: str, arguments: str, content: str
) -> None:
    turn = every_cut(HERMES, text)
    assert (turn.arguments, turn.content) == ([arguments], content)


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"arguments": {"a": 1}, "name": "add"}</tool_call>',
        '<tool_call>{"name":"add","parameters":{"a": 1}}</tool_call>',
        '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>',
        '<tool_call>[{"id": [1, "}"], "name": "add", "arguments": {"a": 1}}]</tool_call>',
        '<tool_call>{"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}',
        # Small models leave the tags out.
        '{"name": "add", "arguments": {"a": 1}}',
        '\n[{"name": "add", "arguments": {"a": 1}}]\n</tool_call>',
    ],
)
def test_calls_are_read_in_the_forms_that_models_make_of_one(text: str) -> None:
    turn = every_cut(HERMES, text)
    assert (turn.arguments, turn.names, turn.content) == (['{"a": 1}'], ["add"], "")


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "ping"}</tool_call>',
        '<tool_call>{"name": "ping", "arguments": null}</tool_call>',
        '<tool_call>{"name": "ping", "arguments": {}}</tool_call>',
    ],
)
def test_a_call_without_arguments_has_an_empty_object(text: str) -> None:
    assert loaded(every_cut(HERMES, text)) == [("ping", {})]


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "add", "parameters": {"a": 1}}',
        '\n\n{"name": "add", "parameters": {"a": 1}}',
        '<|python_tag|>{"name": "add", "parameters": {"a": 1}}',
        '[{"name": "add", "arguments": {"a": 1}}]',
    ],
)
def test_bare_calls_are_read_at_the_beginning_of_a_turn(text: str) -> None:
    turn = every_cut(BARE, text)
    assert (turn.arguments, turn.names, turn.content) == (['{"a": 1}'], ["add"], "")


@pytest.mark.parametrize(
    "text",
    ['{"answer": {"a": 1}}', "{ is a brace", 'So: {"name": "add", "parameters": {"a": 1}}', "[1]"],
)
def test_json_that_is_no_call_is_content(text: str) -> None:
    turn = every_cut(BARE, text)
    assert (turn.content, turn.names) == (text, [])


def test_an_outer_tag_may_be_missing() -> None:
    text = "Now:\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\nDone."
    turn = every_cut(TAGGED, text)
    assert (turn.arguments, turn.content) == (['{"a": 1}'], "Now:\nDone.")


@pytest.mark.parametrize(
    ("key", "written", "value"),
    [
        ("text", "5", "5"),
        ("text", "true", "true"),
        ("text", '  "x"\n\n', '  "x"\n\n'),
        ("text", "", ""),
        ("number", "5", 5),
        ("number", "5.5", 5.5),
        ("number", "five", "five"),
        ("flag", "True", True),
        ("items", '[1, "a"]', [1, "a"]),
        ("inner", '{"a": {"b": null}}', {"a": {"b": None}}),
        ("maybe", "null", None),
        ("maybe", "None of it", "None of it"),
        ("maybe", "5", "5"),
        ("free", "5", 5),
        ("free", "five", "five"),
        ("undeclared", "[]", []),
    ],
)
def test_a_tagged_argument_has_the_type_of_its_schema(
    key: str, written: str, value: object
) -> None:
    text = f"<function=add_all>\n<parameter={key}>\n{written}\n</parameter>\n</function>"
    assert loaded(every_cut(TAGGED, text)) == [("add_all", {key: value})]


def test_a_tagged_call_that_is_cut_keeps_whole_arguments() -> None:
    text = "<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter="
    turn = every_cut(TAGGED, text)
    assert (loaded(turn), turn.content) == ([("add", {"a": 1})], "\n<parameter=")


def test_arguments_are_told_as_they_come() -> None:
    parser = HERMES.parser(tools=TOOLS)
    start = '<tool_call>\n{"name": "note", "arguments": '
    assert parser.feed(start) == []
    assert parser.feed("{") == [CallStart(0, "note"), CallArguments(0, "{")]
    assert parser.feed('"text": "a b') == [CallArguments(0, '"text": "a b')]
    assert parser.feed(' c"}') == [CallArguments(0, ' c"}')]
    assert parser.feed("}\n</tool_call>") == []
    assert parser.finish() == []
    assert parser.num_calls == 1


def test_content_is_told_as_it_comes_but_for_blanks_and_beginnings_of_markers() -> None:
    parser = HERMES.parser(tools=TOOLS)
    assert parser.feed("Hello ") == [Content("Hello")]
    assert parser.feed("you <") == [Content(" you")]
    assert parser.feed("3") == [Content(" <3")]


def test_without_tools_nothing_is_held_back() -> None:
    text = call("add", a=1) + " \n"
    parser = TurnFormat(tool_format=TAG_JSON).parser()
    assert parser.feed(text) == [Content(text)]
    assert parser.finish() == []


def test_parsers_of_two_choices_share_nothing() -> None:
    text = call("add", a=1, b=2)
    one, other = HERMES.parser(tools=TOOLS), HERMES.parser(tools=TOOLS)
    turns = [Turn(), Turn()]
    for character in text:
        for parser, turn in zip((one, other), turns, strict=True):
            for event in parser.feed(character):
                turn.add(event)
    assert turns[0] == turns[1]
    assert loaded(turns[0]) == [("add", {"a": 1, "b": 2})]


def test_a_format_of_the_schema_is_a_kind() -> None:
    kinds = {name: form.kind for name, form in TOOL_FORMATS.items()}
    assert kinds["bare_json"] == kinds["marked_array"] == "json"
    assert kinds["tag_json"] == kinds["tagged_array"] == "tag with JSON"
    assert kinds["sections"] == "tag with name and JSON"
    assert kinds["key_value"] == "tag with tagged arguments"
    assert ToolFormat(body=JsonCall()).is_bare


@pytest.mark.parametrize("name", ["tag_json", "tagged_array", "sections", "tagged"])
def test_one_call_is_told_where_calls_are_not_parallel(name: str) -> None:
    text = "Now.\n" + write_calls(
        TOOL_FORMATS[name], [("add", {"a": 1}), ("note", {"text": "x"}), ("add", {"b": 2})]
    )
    parser, turn = FORMATS[name].parser(tools=TOOLS, parallel=False), Turn()
    for character in text + "\nDone.":
        for event in parser.feed(character):
            turn.add(event)
    for event in parser.finish():
        turn.add(event)
    assert loaded(turn) == [("add", {"a": 1})]
    assert parser.num_calls == 1
    assert turn.content == "Now.\nDone."
