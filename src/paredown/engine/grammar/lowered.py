"""Brings every kind of grammar into the form that llguidance reads."""

import json
from collections.abc import Iterator

from llguidance import LLMatcher
from llguidance.gbnf_to_lark import any_to_lark

from paredown.engine.grammar.grammar import GrammarKind
from paredown.engine.grammar.json_schema import lowered_schema
from paredown.engine.grammar.not_supported import NotSupportedError
from paredown.json_text import JsonTextError, parse_json

# Between the parts of a JSON text: a space, or a new line with its indentation. Models that did not
# expect a form write blanks as long as they may.
_BLANKS = r"\x20|\x0A[\x20\x09]{0,24}"


def lowered(kind: GrammarKind, text: str) -> Iterator[str]:
    """Yields llguidance's grammar, and another to try where that one fails for a `oneOf`. Raises
    NotSupportedError."""
    if kind == "json_object":
        yield _json_grammar({"type": "object"})
    elif kind == "json_schema":
        schema = _parsed(text)
        yield _json_grammar(lowered_schema(schema))
        yield _json_grammar(lowered_schema(schema, parts_one_of=True))
    elif kind == "regex":
        yield LLMatcher.grammar_from_regex(text)
    elif kind == "choice":
        yield _choice_grammar(_parsed(text))
    else:
        yield _lark_grammar(text)


def _parsed(text: str) -> object:
    try:
        return parse_json(text)
    except JsonTextError as error:
        raise NotSupportedError(f"it is not JSON: {error}") from error


def _json_grammar(schema: dict[str, object]) -> str:
    return LLMatcher.grammar_from_json_schema(
        json.dumps(schema, ensure_ascii=False),
        overrides={"whitespace_pattern": _BLANKS, "lenient": False},
    )


def _choice_grammar(texts: object) -> str:
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise NotSupportedError("a choice is a JSON list of texts")
    options = " | ".join(json.dumps(one) for one in dict.fromkeys(texts))
    return LLMatcher.grammar_from_lark(f"start: {options}")


def _lark_grammar(text: str) -> str:
    try:
        return LLMatcher.grammar_from_lark(any_to_lark(text))
    except Exception as error:  # the converter raises whatever it meets
        raise NotSupportedError(f"it is neither Lark nor GBNF: {error}") from error
