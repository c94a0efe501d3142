"""TurnGrammar: the form of a model's turn: calls that it must make, or text of the form that was
asked for, with what may come before and beside it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from paredown.engine.grammar.grammar import Grammar
from paredown.models.chat.tool_grammar import ToolGrammar
from paredown.serve.intake.chat_prompt import ChatPrompt
from paredown.serve.schema.tools import ToolUse
from paredown.serve.state import ServerTokenizer

# As between the parts of other JSON texts (engine/grammar/lowered.py).
_JSON_OPTIONS = {"whitespace_pattern": r"\x20|\x0A[\x20\x09]{0,24}", "lenient": False}


@dataclass(frozen=True, kw_only=True)
class TurnGrammar:
    """`leaves_room` says whether reasoning may come before what is asked for."""

    grammar: Grammar
    leaves_room: bool


def turn_grammars(
    tokenizer: ServerTokenizer, chat: ChatPrompt, use: ToolUse | None, asked: Grammar | None
) -> Iterator[TurnGrammar]:
    """Yields the grammars of a turn, none where it is free; a later one is for a form that cannot
    be part of the one before it. Calls that must be made stand in place of the text of a form."""
    form = chat.form
    made = ToolGrammar(
        tool_format=form.tool_format,
        control_ids=tokenizer.control_ids,
        reasoning=form.reasoning,
        opens_reasoning=chat.is_reasoning_open,
    )
    if use is not None and use.must_call:
        text = made.text(use.tools, name=use.name, parallel=use.are_parallel)
        yield TurnGrammar(grammar=Grammar(kind="lark", text=text, origin="tools"), leaves_room=True)
        return
    if asked is None:
        return
    # Calls that nothing announces look like the text of a form.
    may_call = form.tool_format is not None and not form.tool_format.is_bare and use is not None
    rule = _answer_rule(asked)
    if rule and (may_call or form.reasoning is not None):
        tools = use.tools if may_call and use is not None else ()
        text = made.text(tools, parallel=use is None or use.are_parallel, answer=rule)
        yield TurnGrammar(
            grammar=Grammar(kind="lark", text=text, origin=asked.origin), leaves_room=True
        )
    yield TurnGrammar(grammar=asked, leaves_room=False)


def _answer_rule(asked: Grammar) -> str:
    """Returns the form as the body of a rule in Lark, or an empty text where it cannot be one."""
    if asked.kind == "choice":
        return " | ".join(map(json.dumps, json.loads(asked.text)))
    if asked.kind == "json_object":
        return "%json " + json.dumps({"x-guidance": _JSON_OPTIONS, "type": "object"})
    if asked.kind != "json_schema":
        return ""
    try:
        schema = json.loads(asked.text)
    except ValueError:
        return ""
    if not isinstance(schema, dict):
        return ""
    return "%json " + json.dumps({"x-guidance": _JSON_OPTIONS, **schema})
